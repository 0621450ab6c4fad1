"""What a front end asks of its leader: adapters are loaded there, figures are summed there. Over a Unix socket.

A request is passed on as it is and its reply comes back as it is, so that an error is the same whoever was asked.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from http.client import HTTPConnection, HTTPException
from typing import Any

from flask import Flask, Response, request

from container.process_group.process_context import ProcessContext
from container.process_group.shared_state import Leader
from container.requests.request_body import read_body
from container.service import Service
from handler.errors import EngineFailed, NotReady

# Which of the processes has answered, for those who look into it.
HEADER = "X-Endpoint-Front-End"
# Blueprints and endpoints that are the leader's.
BLUEPRINTS = frozenset(("adapters", "metrics", "page"))
ENDPOINTS = frozenset(("multi_model.load", "multi_model.listing", "multi_model.describe", "multi_model.unload"))
# Longer than the loading of an adapter may take.
SECONDS = 600.0
PASSED_ON = ("Content-Type", "Accept", "X-Amzn-SageMaker-Custom-Attributes")
BROUGHT_BACK = (
    "Content-Type",
    "Content-Security-Policy",
    "X-Content-Type-Options",
    "Referrer-Policy",
    "Cache-Control",
    "Retry-After",
)


def install(app: Flask, service: Service, post: ProcessContext) -> None:
    """Makes an application that of one process among several."""

    @app.after_request
    def named(response: Response) -> Response:
        response.headers[HEADER] = str(post.seat)
        return response

    if post.seat == 0:
        app.wsgi_app = _without_peers(app.wsgi_app)  # type: ignore[method-assign]
        return

    @app.before_request
    def relayed() -> Response | None:
        if request.blueprint in BLUEPRINTS or request.endpoint in ENDPOINTS:
            return ask(service, post)
        return None


def ask(service: Service, post: ProcessContext) -> Response:
    """The leader's reply to the request at hand.

    :raises NotReady, EngineFailed: there is no leader to ask.
    """
    body = read_body(request, service.config.max_body, service.deadlines)
    headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
    connection = _Connection(post)
    try:
        connection.request(request.method, request.environ.get("RAW_URI", request.path), body, headers)
        reply = connection.getresponse()
        data = reply.read()
    except (OSError, HTTPException):
        if service.peers is not None and service.peers.board.leader in (Leader.FAILED, Leader.GONE):
            raise EngineFailed("its process ended") from None
        raise NotReady("the leading process does not answer") from None
    finally:
        connection.close()
    kept = {name: value for name in BROUGHT_BACK if (value := reply.getheader(name)) is not None}
    return Response(data, reply.status, kept)


class _Connection(HTTPConnection):
    def __init__(self, post: ProcessContext) -> None:
        super().__init__("leader", timeout=SECONDS)
        self._address = str(post.socket)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._address)


def _without_peers(application: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """The observer counts what clients ask: what a front end passes on it has counted already."""
    unobserved = getattr(application, "application", application)

    def choose(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        connection = environ.get("gunicorn.socket")
        peer = connection is not None and connection.family == socket.AF_UNIX
        return (unobserved if peer else application)(environ, start_response)

    return choose
