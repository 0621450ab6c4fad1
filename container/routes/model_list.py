"""GET /v1/models and /v1/models/{id}: the names of the served models and adapters."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response

from container.routes.json_views import reply
from container.service import Service
from handler.errors import ModelNotFound
from handler.schemas.openai.model_names import model_list


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("models", __name__)

    def listed() -> list[dict[str, Any]]:
        service.require_engine()
        return listed_models(service)

    @routes.get("/v1/models")
    def models() -> Response:
        return reply({"object": "list", "data": listed()})

    @routes.get("/v1/models/<path:name>")
    def model(name: str) -> Response:
        listing = listed()
        for entry in listing:
            if entry["id"] == name:
                return reply(entry)
        raise ModelNotFound(name, tuple(entry["id"] for entry in listing))

    return routes


def listed_models(service: Service) -> list[dict[str, Any]]:
    """The entries of the list. None before there is an engine."""
    # Without a setting, names after the first one are the model's places. They are accepted and not shown.
    last = None if service.config.served_model_name else 1
    lists = [
        model_list(engine.base_names[:last], engine.limits.max_model_len, engine.adapter_names)
        for engine in service.engines()
    ]
    return [model for models in lists for model in models]
