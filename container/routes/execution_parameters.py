"""GET /execution-parameters: how batch transform is to send its records, from what the engine can hold."""

from __future__ import annotations

from flask import Blueprint, Response

from container.requests.http_limits import execution_parameters as parameters_of
from container.service import Service
from handler.schemas.reply import encode


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("transform", __name__)

    @routes.get("/execution-parameters")
    def execution_parameters() -> Response:
        engine = service.ready_engine()
        body = encode(parameters_of(service.config, engine.slots, engine.limits.max_model_len))
        return Response(body, content_type="application/json")

    return routes
