"""The application: the URL decides whether the inference pipeline or Flask answers a request."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

from flask import Flask, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound, RequestEntityTooLarge
from werkzeug.http import is_hop_by_hop_header
from werkzeug.routing import WebsocketMismatch
from werkzeug.wrappers import Response

from container.http.exchange import Exchange, send_pieces
from container.inference import inference_routes as inference
from container.inference.custom_code_reply import CodePing, answer_with_code, code_for
from container.inference.pipeline import Pipeline
from container.inference.session_requests import close_unseen
from container.openapi import document as openapi
from container.requests import custom_attributes
from container.requests.error_responses import error_reply, unexpected
from container.requests.origin_check import check_origin
from container.requests.request_record import record_of
from container.routes import adapter_routes as adapters
from container.routes import batch_routes as batches
from container.routes import execution_parameters as transform
from container.routes import model_list as models
from container.routes import model_routes as multi_model
from container.routes import page_route as page
from container.routes import ping as health
from container.routes import prometheus as metrics
from container.routes.ping import ping_reply
from container.service import Service
from handler import errors
from handler.custom_code.code_contract import PING

# Threads of Flask's routes. Loading a model or an adapter holds one.
THREADS = 32
HEALTH = ("/ping", "/health")
# More bytes of a body than this are sent in pieces.
LARGEST_WHOLE = 1 << 20


def create_app(service: Service) -> Flask:
    """The Flask application of the routes that ask no engine for anything."""
    app = Flask("container", static_folder=None)
    app.url_map.strict_slashes = app.url_map.merge_slashes = False  # they would redirect, with a page
    register_error_handlers(app)
    own = (health, inference, metrics, models, transform, adapters, multi_model, batches, page, openapi)
    for routes in own:
        app.register_blueprint(routes.blueprint(service))

    @app.before_request
    def record_route() -> None:
        rule = request.url_rule
        record_of(request.environ).route = rule.rule if rule is not None else "(none)"

    return app


def register_error_handlers(app: Flask) -> None:
    """Errors in Flask's views: each becomes an error object."""

    def endpoint_error(error: errors.EndpointError) -> Response:
        record_of(request.environ).failed(error)
        status, headers, body = error_reply(error, request.path)
        return Response(body, status, headers)

    def http_error(error: HTTPException) -> Response:
        if isinstance(error, NotFound):
            return endpoint_error(errors.RouteNotFound(request.method, request.path))
        if isinstance(error, MethodNotAllowed):
            allowed = tuple(sorted(set(error.valid_methods or ()) - {"HEAD", "OPTIONS"}))
            return endpoint_error(errors.MethodNotAllowed(request.method, request.path, allowed))
        if isinstance(error, WebsocketMismatch):
            return endpoint_error(errors.InvalidRequest("there is no WebSocket at its path"))
        if isinstance(error, RequestEntityTooLarge):  # Flask's limits of a form: larger bodies do not come this far
            problem = "its form has too many parts, or too long a field"
            return endpoint_error(errors.InvalidBody(problem, "a form with a file and few fields"))
        return endpoint_error(errors.InvalidBody(error.description or error.name))

    app.register_error_handler(errors.EndpointError, endpoint_error)
    app.register_error_handler(HTTPException, http_error)
    app.register_error_handler(Exception, lambda error: endpoint_error(unexpected(error)))


class RequestRouter:
    """Answers the requests to one service."""

    def __init__(self, service: Service, app: Flask) -> None:
        self._service, self._app = service, app
        self._routes = inference.InferenceRoutes(service, Pipeline(service))
        self._threads = ThreadPoolExecutor(THREADS, "routes")
        self._health_thread = ThreadPoolExecutor(1, "health")  # loads of models may hold all others
        # A request to the model's own code holds a thread until its last byte. One more is for /ping.
        self._code_threads = ThreadPoolExecutor(service.config.max_concurrent + 1, "custom-code")
        self._pings = CodePing()

    async def answer(self, exchange: Exchange) -> None:
        """Answers one request.

        :raises EndpointError: the error is the reply.
        """
        service, route = self._service, self._routes.find(exchange)
        if route is not None:
            exchange.record.route = route.rule
            attributes = custom_attributes.returned(exchange.request.headers.get(custom_attributes.HEADER))
            if attributes is not None:
                exchange.headers.append((custom_attributes.HEADER, attributes))
        check_origin(exchange.request)
        code = code_for(service, exchange.method, exchange.path)
        if code is not None and exchange.path.rstrip("/") == PING[1] and ping_reply(service)[0] != 200:
            code = None
        try:
            if code is not None and await answer_with_code(service, code, exchange, self._code_threads, self._pings):
                return
            if route is not None:
                await route.answer(exchange)
            else:
                await self._answer_by_flask(exchange)
        finally:
            if exchange.admitted:  # no route has taken it
                service.admission.leave()
            close_unseen(service, exchange)
            exchange.record.body = b""  # the log's thread and EMF keep the record

    async def _answer_by_flask(self, exchange: Exchange) -> None:
        loop = asyncio.get_running_loop()
        threads = self._health_thread if exchange.path in HEALTH else self._threads
        response, start, whole = await loop.run_in_executor(threads, self._response, exchange)
        headers = [(name, value) for name, value in response.headers.items() if not is_hop_by_hop_header(name)]
        try:
            if whole:
                exchange.send(response.status_code, headers, start)
                return
            length = response.content_length
            exchange.begin(
                response.status_code, [header for header in headers if header[0] != "Content-Length"], length
            )
            exchange.write(start)
            await send_pieces(exchange, response.iter_encoded(), threads)
        finally:
            await loop.run_in_executor(threads, response.close)

    def _response(self, exchange: Exchange) -> tuple[Response, bytes, bool]:
        """Flask's response, the first bytes of its body, and whether these are all."""
        response = Response.from_app(self._app, wsgi_environ(exchange))
        start, pieces = b"", response.iter_encoded()
        response.response = pieces  # goes on where this loop ends
        for piece in pieces:
            start += piece
            if len(start) > LARGEST_WHOLE:
                return response, start, False
        return response, start, True


def wsgi_environ(exchange: Exchange) -> dict[str, Any]:
    """The environment for Flask (PEP 3333)."""
    body = exchange.body
    return {
        "SCRIPT_NAME": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        **exchange.head.environ,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": BytesIO(body),
    }
