"""/adapters: loads and unloads LoRA adapters, with the API of SageMaker's adapter inference components and of LMI.

Sources of the API: aws/model-hosting-container-standards (sagemaker/lora), deepjavalibrary/djl-serving
(serving/docs/adapters_api.md).
"""

from __future__ import annotations

from typing import Any

import msgspec
from flask import Blueprint, Response, request

from container.routes.json_views import body_fields, page, reply, required
from container.service import Service
from handler.engine.adapters.adapter_errors import AdaptersUnsupported
from handler.engine.adapters.adapters import Adapter, Adapters
from handler.errors import InvalidField

# The name by which the adapter's owner knows it. Replies say it instead of the adapter's name.
ALIAS_HEADER = "X-Amzn-SageMaker-Adapter-Alias"
OFF = "the engine was started without adapters; set ENDPOINT_ENABLE_LORA=true"


class AdapterFields(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a request that loads an adapter.

    :param preload: no effect. An adapter is always loaded at once, so that this reply reports a bad one.
    :param pin: no effect beyond that. It is reported. vLLM's engine ends if adapters are pinned and a batch needs more.
    """

    name: str | None = None
    src: str | None = None
    preload: bool | None = True
    pin: bool | None = None


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("adapters", __name__)

    @routes.post("/adapters")
    def load() -> Response:
        fields = body_fields(AdapterFields)
        name, src = required("name", fields.name), required("src", fields.src)
        adapter = adapters_of(service).load(name, src, pin=fields.pin, taken=service.has_model)
        return reply(described(adapter) | {"status": f"Adapter {alias(adapter.name)} registered"})

    @routes.post("/adapters/<path:name>")
    def update(name: str) -> Response:
        fields = body_fields(AdapterFields)
        if fields.name not in (None, name):
            raise InvalidField("name", "it is not the name in the path")
        src = required("src", fields.src)
        adapter = adapters_of(service).load(name, src, pin=fields.pin, replace=True)
        return reply(described(adapter) | {"status": f"Adapter {alias(adapter.name)} updated"})

    @routes.get("/adapters")
    def listing() -> Response:
        adapters, next_page = page([described(adapter) for adapter in adapters_of(service).all()])
        return reply({"adapters": adapters} | next_page)

    @routes.get("/adapters/<path:name>")
    def describe(name: str) -> Response:
        return reply(described(adapters_of(service).get(name)))

    @routes.delete("/adapters/<path:name>")
    def unload(name: str) -> Response:
        adapters_of(service).unload(name)
        return reply({"status": f"Adapter {alias(name)} unregistered"})

    return routes


def adapters_of(service: Service) -> Adapters:
    """The adapters of the engine.

    :raises AdaptersUnsupported: the engine serves no adapters.
    """
    adapters = service.ready_engine().adapters
    if adapters is None:
        raise AdaptersUnsupported(OFF)
    return adapters


def alias(name: str) -> str:
    return request.headers.get(ALIAS_HEADER) or name


def described(adapter: Adapter) -> dict[str, Any]:
    return {"name": adapter.name, "src": adapter.source, "preload": True, "pin": adapter.pinned}
