"""GET /v1/models: the names the model is served by."""

from __future__ import annotations

from flask import Blueprint, Response

from container.service import Service
from handler.schemas.models import model_list
from handler.schemas.reply import encode


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("models", __name__)

    @routes.get("/v1/models")
    def models() -> Response:
        engine = service.ready_engine()
        body = encode(model_list(engine.base_names, engine.max_model_len, engine.adapter_names))
        return Response(body, content_type="application/json")

    return routes
