"""/models: a multi-model endpoint's contract. Its models are LoRA adapters over the one model in the engine.

SageMaker loads a model with POST when it is first asked for; told 507, it unloads the one that was not used for longest
and asks again ("Custom containers for multi-model endpoints", contract for serving multiple models). So nothing is
unloaded here on our own: SageMaker would go on sending it requests.
"""

from __future__ import annotations

import msgspec
from flask import Blueprint, Response, request

from container.answer import answer, by_its_body
from container.body import read_json
from container.paging import page
from container.routes.adapters import adapters_of, reply, required, table_of
from container.service import Service
from handler.adapters.errors import AdapterExists
from handler.adapters.table import Adapter
from handler.schemas.body import decode
from handler.schemas.fields import convert


class ModelFields(msgspec.Struct, frozen=True, kw_only=True):
    model_name: str | None = None
    url: str | None = None


def blueprint(service: Service) -> Blueprint:
    """Empty on an endpoint of one model: its paths are then not found."""
    routes = Blueprint("multi_model", __name__)
    if not service.config.multi_model:
        return routes

    @routes.post("/models")
    def load() -> Response:
        fields = convert(decode(read_json(request, service.config.max_body, service.deadlines)), ModelFields)
        name, url = required("model_name", fields.model_name), required("url", fields.url)
        adapters = adapters_of(service)
        if name in adapters.names():
            raise AdapterExists(name)
        return reply(described(adapters.load(name, url)))

    @routes.get("/models")
    def listing() -> Response:
        found, token = page(request, [described(model) for model in adapters_of(service).all()])
        return reply({"models": found} | ({"nextPageToken": token} if token else {}))

    @routes.get("/models/<path:name>")
    def describe(name: str) -> Response:
        return reply(described(adapters_of(service).get(name)))

    @routes.delete("/models/<path:name>")
    def unload(name: str) -> Response:
        adapters_of(service).unload(name)
        return reply({"modelName": name})

    @routes.post("/models/<path:name>/invoke")
    def invoke(name: str) -> Response:
        table_of(service).get(name)
        return answer(service, request, by_its_body(service, request), model=name)

    return routes


def described(adapter: Adapter) -> dict[str, str]:
    return {"modelName": adapter.name, "modelUrl": adapter.source}
