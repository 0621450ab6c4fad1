"""GET /invocations-bidirectional-stream: InvokeEndpointWithBidirectionalStream, as a WebSocket.

Each message of the client is one body of /invocations; each document of the reply is one frame, as is an error.
"""

from __future__ import annotations

from flask import Blueprint, Response, request

from container.pipeline.request_pipeline import body_parser
from container.pipeline.websocket_session import WebSocketSession
from container.service import Service
from handler.errors import UpgradeRequired

PATH = "/invocations-bidirectional-stream"


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("bidirectional", __name__)

    @routes.get(PATH)
    def plain() -> Response:
        raise UpgradeRequired(PATH)

    @routes.get(PATH, websocket=True)
    def converse() -> Response:
        parse = body_parser(service, request)
        engine = service.ready_engine()
        service.admission.enter()
        return WebSocketSession(service, engine, parse)

    return routes
