"""Passes requests that only the leader can answer from a front end to its leader, over a Unix socket.

The leader loads adapters and models, and sums up metrics. Request and reply are passed on unchanged, so that an error
is the same in every process.
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

# The slot of the process that answered, for diagnosis.
HEADER = "X-Endpoint-Front-End"
# Blueprints and endpoints that the leader answers.
BLUEPRINTS = frozenset(("adapters", "batches", "metrics", "page"))
ENDPOINTS = frozenset(("multi_model.load", "multi_model.listing", "multi_model.describe", "multi_model.unload"))
# Longer than loading an adapter takes.
SECONDS = 600.0
REQUEST_HEADERS = ("Content-Type", "Accept", "X-Amzn-SageMaker-Custom-Attributes")
REPLY_HEADERS = (
    "Content-Type",
    "Content-Security-Policy",
    "X-Content-Type-Options",
    "Referrer-Policy",
    "Cache-Control",
    "Retry-After",
)


def install(app: Flask, service: Service, context: ProcessContext) -> None:
    """Adapts an application to one process among several: front ends pass some requests on to the leader."""

    @app.after_request
    def with_slot(response: Response) -> Response:
        response.headers[HEADER] = str(context.slot)
        return response

    if context.slot == 0:
        app.wsgi_app = _without_peers(app.wsgi_app)  # type: ignore[method-assign]
        return

    @app.before_request
    def pass_on() -> Response | None:
        if request.blueprint in BLUEPRINTS or request.endpoint in ENDPOINTS:
            return leader_reply(service, context)
        return None


def leader_reply(service: Service, context: ProcessContext) -> Response:
    """The leader's reply to the current request.

    :raises NotReady, EngineFailed: the leader does not answer, or has ended.
    """
    body = read_body(request, service.config.max_body, service.read_timeouts)
    headers = {name: request.headers[name] for name in REQUEST_HEADERS if name in request.headers}
    headers["Host"] = request.host  # the leader checks it for the page
    connection = _Connection(context)
    try:
        connection.request(request.method, request.environ.get("RAW_URI", request.path), body, headers)
        reply = connection.getresponse()
        data = reply.read()
    except (OSError, HTTPException):
        if service.peers is not None and service.peers.shared_state.leader in (Leader.FAILED, Leader.GONE):
            raise EngineFailed("its process ended") from None
        raise NotReady("the leader process does not answer") from None
    finally:
        connection.close()
    kept = {name: value for name in REPLY_HEADERS if (value := reply.getheader(name)) is not None}
    return Response(data, reply.status, kept)


class _Connection(HTTPConnection):
    def __init__(self, context: ProcessContext) -> None:
        super().__init__("leader", timeout=SECONDS)
        self._address = str(context.socket)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._address)


def _without_peers(application: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """Keeps the front ends' requests from the leader's observer: the front end has observed them already."""
    unobserved = getattr(application, "application", application)

    def choose(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        connection = environ.get("gunicorn.socket")
        peer = connection is not None and connection.family == socket.AF_UNIX
        return (unobserved if peer else application)(environ, start_response)

    return choose
