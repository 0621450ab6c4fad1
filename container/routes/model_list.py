"""GET /v1/models: the names of the served models and adapters."""

from __future__ import annotations

from flask import Blueprint, Response

from container.service import Service
from handler.schemas.openai.model_names import model_list
from handler.schemas.reply import encode


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("models", __name__)

    @routes.get("/v1/models")
    def models() -> Response:
        service.require_engine()
        lists = [model_list(one.base_names, one.limits.max_model_len, one.adapter_names) for one in service.engines()]
        body = encode({"object": "list", "data": [model for found in lists for model in found["data"]]})
        return Response(body, content_type="application/json")

    return routes
