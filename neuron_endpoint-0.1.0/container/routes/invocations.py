"""The paths of the inference pipeline, as Flask has to know them: for other methods, and for GET /openapi.json."""

from __future__ import annotations

from flask import Blueprint, Response

from container.inference.inference_routes import MODEL_RULE, WEBSOCKET, parsers
from container.service import Service
from handler.errors import UpgradeRequired


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("inference", __name__)

    def answered_before(**values: str) -> Response:
        raise AssertionError("the pipeline answers a POST to this path")

    paths = [path for path, _ in parsers()] + ([MODEL_RULE] if service.config.multi_model else [])
    for path in paths:
        endpoint = path.strip("/").replace("/", "_").partition("<")[0]
        routes.add_url_rule(path, endpoint=endpoint, view_func=answered_before, methods=["POST"])

    @routes.get(WEBSOCKET)
    def plain() -> Response:
        raise UpgradeRequired(WEBSOCKET)

    return routes
