"""The error tree mapped to HTTP, here and nowhere else: OpenAI's error object, never a traceback."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound, RequestEntityTooLarge

from container.connection.gunicorn_connection import GunicornConnection
from container.requests.request_body import is_left
from container.requests.request_record import record_of
from handler.errors import (
    BodyTooLarge,
    EndpointError,
    InvalidBody,
    RequestTimedOut,
    RouteNotFound,
    ServerError,
)
from handler.errors import MethodNotAllowed as WrongMethod
from handler.schemas.reply import encode

logger = logging.getLogger(__name__)


def error_response(error: EndpointError, *, last: bool = False) -> Response:
    """The reply for an error of the tree.

    :param last: the connection is closed after it.
    """
    kind = ClosingResponse if last or isinstance(error, RequestTimedOut) else Response
    response = kind(encode(error.document()), status=error.status, content_type="application/json")
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    if isinstance(error, WrongMethod):
        response.headers["Allow"] = ", ".join(error.allowed)
    return response


class ClosingResponse(Response):
    """The last response on its connection: what is left of the request will never come."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        connection = GunicornConnection.of(environ, start_response)
        if connection is not None:
            connection.close_afterwards()
        return super().__call__(environ, start_response)


def unexpected(error: Exception) -> ServerError:
    """For the client a sentence, for the log all of it."""
    logger.error("an unexpected error", exc_info=error)
    return ServerError("An unexpected error happened here; it is in the container's log.")


def register(app: Flask, max_body: int) -> None:
    """Every error that a view can raise ends as an error object."""

    def known(error: EndpointError) -> Response:
        record_of(request.environ).failed(error)
        return error_response(error, last=is_left(request))

    def http(error: HTTPException) -> Response:
        if isinstance(error, NotFound):
            return known(RouteNotFound(request.method, request.path))
        if isinstance(error, MethodNotAllowed):
            allowed = tuple(sorted(set(error.valid_methods or ()) - {"HEAD", "OPTIONS"}))
            return known(WrongMethod(request.method, request.path, allowed))
        if isinstance(error, RequestEntityTooLarge):
            return known(BodyTooLarge(max_body))
        return known(InvalidBody(error.description or error.name))

    def unknown(error: Exception) -> Response:
        return known(unexpected(error))

    app.register_error_handler(EndpointError, known)
    app.register_error_handler(HTTPException, http)
    app.register_error_handler(Exception, unknown)
