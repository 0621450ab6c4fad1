"""GET /openapi.json: what is served here, as an OpenAPI 3.1 document."""

from __future__ import annotations

import threading

from flask import Blueprint, Response, current_app

from container.openapi.document import document
from container.service import Service
from handler.schemas.reply import encode


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("openapi", __name__)
    lock = threading.Lock()
    made: list[bytes] = []

    @routes.get("/openapi.json")
    def openapi() -> Response:
        """Made when it is first asked for: vLLM's models take 3 s to tell of themselves."""
        service.lifecycle.require_ready()
        with lock:
            if not made:
                serving = None if service.engine is None else service.engine.serving
                rules = current_app.url_map.iter_rules()
                told = () if serving is None else serving.schemas()
                made.append(encode(document(rules, *told, own_code=service.custom_code is not None)))
        return Response(made[0], content_type="application/json")

    return routes
