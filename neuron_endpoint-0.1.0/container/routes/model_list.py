"""GET /v1/models and /v1/models/{id}: the names of the served models and adapters."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response

from container.service import Service
from handler.errors import ModelNotFound
from handler.schemas.openai.model_names import model_list
from handler.schemas.reply import encode


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("models", __name__)

    def listed() -> list[dict[str, Any]]:
        service.require_engine()
        # Without a setting, names after the first one are the model's places. They are accepted and not shown.
        last = None if service.config.served_model_name else 1
        lists = [
            model_list(one.base_names[:last], one.limits.max_model_len, one.adapter_names) for one in service.engines()
        ]
        return [model for found in lists for model in found]

    @routes.get("/v1/models")
    def models() -> Response:
        return Response(encode({"object": "list", "data": listed()}), content_type="application/json")

    @routes.get("/v1/models/<path:name>")
    def model(name: str) -> Response:
        found = listed()
        for one in found:
            if one["id"] == name:
                return Response(encode(one), content_type="application/json")
        raise ModelNotFound(name, tuple(one["id"] for one in found))

    return routes
