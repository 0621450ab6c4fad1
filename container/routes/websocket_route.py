"""GET /invocations-bidirectional-stream: a WebSocket, for SageMaker's InvokeEndpointWithBidirectionalStream.

Each message of the client is a body of /invocations. Each JSON document of the reply, or the error, is one frame.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from flask import Blueprint, Response, request

from container.pipeline.request_pipeline import body_parser
from container.service import Service
from handler.errors import UpgradeRequired

PATH = "/invocations-bidirectional-stream"


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("bidirectional", __name__)
    # One more than can be admitted: it tells the next client that there are too many.
    threads = ThreadPoolExecutor(service.config.max_concurrent + 1, "websocket")

    @routes.get(PATH)
    def plain() -> Response:
        raise UpgradeRequired(PATH)

    @routes.get(PATH, websocket=True)
    def converse() -> Response:
        from container.pipeline.websocket_session import WebSocketSession  # wsproto: few endpoints need it

        parse = body_parser(service, request)
        engine = service.ready_engine()
        return WebSocketSession(service, engine, parse, threads)

    return routes
