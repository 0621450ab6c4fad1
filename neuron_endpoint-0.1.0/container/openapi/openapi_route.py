"""GET /openapi.json: the endpoint's OpenAPI 3.1 document."""

from __future__ import annotations

import threading

from flask import Blueprint, Response, current_app

from container.openapi.document import document
from container.service import Service
from handler.schemas.reply import encode


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("openapi", __name__)
    lock = threading.Lock()
    cached: list[bytes] = []

    @routes.get("/openapi.json")
    def openapi() -> Response:
        """The document. It is cached at the first request: the schemas of vLLM's models take 3 s."""
        service.lifecycle.require_ready()
        with lock:
            if not cached:
                serving = None if service.engine is None else service.engine.serving
                rules = current_app.url_map.iter_rules()
                schemas = () if serving is None else serving.schemas()
                cached.append(encode(document(rules, *schemas, own_code=service.custom_code is not None)))
        return Response(cached[0], content_type="application/json")

    return routes
