"""/models: SageMaker's contract for multi-model endpoints.

A model is either a whole model with its own engine (`handler.startup.multi_model`), or a LoRA adapter on the model of
the start. The files in the URL's directory decide which.
"""

from __future__ import annotations

import msgspec
from flask import Blueprint, Response

from container.routes.adapter_routes import adapters_of
from container.routes.json_views import body_fields, page, reply, required
from container.service import Service
from handler.engine.adapters.adapters import Adapter
from handler.startup.adapter_loading import bring
from handler.startup.multi_model.model_errors import InvalidModel
from handler.startup.multi_model.model_registry import LoadedModel, ModelState
from handler.startup.multi_model.model_start import ADAPTER_CONFIG, CONFIG


class ModelFields(msgspec.Struct, frozen=True, kw_only=True):
    model_name: str | None = None
    url: str | None = None


def blueprint(service: Service) -> Blueprint:
    """The routes of a multi-model endpoint. Other endpoints have none of these paths."""
    routes = Blueprint("multi_model", __name__)
    if not service.config.multi_model:
        return routes

    @routes.post("/models")
    def load() -> Response:
        fields = body_fields(ModelFields)
        name, url = required("model_name", fields.model_name), required("url", fields.url)
        service.require_engine()
        if service.models is not None and (model := service.models.load(name, url)) is not None:
            return reply(description(model))
        return reply(description(load_adapter(service, name, url)))

    @routes.get("/models")
    def listing() -> Response:
        service.require_engine()
        models: list[LoadedModel | Adapter] = [*(service.models.all() if service.models is not None else ())]
        adapters = service.adapters
        models += [] if adapters is None else adapters.all()
        page_items, next_page = page([description(model) for model in models])
        return reply({"models": page_items} | next_page)

    @routes.get("/models/<path:name>")
    def describe(name: str) -> Response:
        return reply(description(service.model(name)))

    @routes.delete("/models/<path:name>")
    def unload(name: str) -> Response:
        if service.models is not None and isinstance(service.model(name), LoadedModel):
            ended = service.models.unload(name)
            return reply({"modelName": name} | ({"endedRequests": ended} if ended else {}))
        adapters_of(service).unload(name)
        return reply({"modelName": name})

    return routes


def load_adapter(service: Service, name: str, url: str) -> Adapter:
    """Loads an adapter as a model.

    :raises EndpointError: the URL has no adapter, the engine cannot serve it, or the name is in use.
    """
    if service.adapters is None and not is_adapter(service, url):
        raise InvalidModel(name, f"there is no {CONFIG} in '{url[:200]}'", "Name the directory of a whole model.")
    return adapters_of(service).load(name, url, again=False, taken=service.has_model)


def is_adapter(service: Service, url: str) -> bool:
    return service.engine is not None and (bring(url, service.config) / ADAPTER_CONFIG).is_file()


def description(model: LoadedModel | Adapter) -> dict[str, str]:
    fields = {"modelName": model.name, "modelUrl": model.source}
    if isinstance(model, LoadedModel) and model.state is ModelState.FAILED:
        return {**fields, "state": model.state.value, "reason": model.reason}
    return fields
