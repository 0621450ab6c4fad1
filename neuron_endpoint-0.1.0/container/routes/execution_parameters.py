"""GET /execution-parameters: how batch transform should send its records, from the engine's capacity."""

from __future__ import annotations

from flask import Blueprint, Response

from container.requests import http_limits
from container.service import Service
from handler.schemas.reply import encode


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("transform", __name__)

    @routes.get("/execution-parameters")
    def execution_parameters() -> Response:
        engine = service.ready_engine()
        body = encode(http_limits.execution_parameters(service.config, engine.slots, engine.limits.max_model_len))
        return Response(body, content_type="application/json")

    return routes
