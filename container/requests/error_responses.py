"""Maps the error tree to HTTP replies with the error object of the path's API. No reply contains a traceback."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound, RequestEntityTooLarge

from container.connection.gunicorn_connection import GunicornConnection
from container.requests.request_body import has_unread_body
from container.requests.request_record import record_of
from handler import errors
from handler.schemas.anthropic.message_errors import error_document
from handler.schemas.anthropic.messages import MessagesRoute
from handler.schemas.reply import encode

logger = logging.getLogger(__name__)


def error_response(error: errors.EndpointError, path: str = "", *, last: bool = False) -> Response:
    """The reply for an error.

    :param path: of the request. Paths of the Messages API have its errors, all others OpenAI's.
    :param last: close the connection after it.
    """
    kind = ClosingResponse if last or isinstance(error, errors.RequestTimedOut) else Response
    document = error_document(error) if path in list(MessagesRoute) else error.document()
    response = kind(encode(document), status=error.status, content_type="application/json")
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    if isinstance(error, errors.MethodNotAllowed):
        response.headers["Allow"] = ", ".join(error.allowed)
    return response


class ClosingResponse(Response):
    """A response after which the connection is closed: the rest of the request is not read."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        connection = GunicornConnection.of(environ, start_response)
        if connection is not None:
            connection.close_afterwards()
        return super().__call__(environ, start_response)


def unexpected(error: Exception) -> errors.ServerError:
    """Logs an unexpected error with its traceback. Returns the error that the client gets, without details."""
    logger.error("An unexpected error", exc_info=error)
    return errors.ServerError("An unexpected error occurred. The container's log has the details.")


def register(app: Flask, max_body: int) -> None:
    """Registers handlers, so that every error in a view becomes an error object."""

    def endpoint_error(error: errors.EndpointError) -> Response:
        record_of(request.environ).failed(error)
        return error_response(error, request.path, last=has_unread_body(request))

    def http_error(error: HTTPException) -> Response:
        if isinstance(error, NotFound):
            return endpoint_error(errors.RouteNotFound(request.method, request.path))
        if isinstance(error, MethodNotAllowed):
            allowed = tuple(sorted(set(error.valid_methods or ()) - {"HEAD", "OPTIONS"}))
            return endpoint_error(errors.MethodNotAllowed(request.method, request.path, allowed))
        if isinstance(error, RequestEntityTooLarge):
            return endpoint_error(errors.BodyTooLarge(max_body))
        return endpoint_error(errors.InvalidBody(error.description or error.name))

    app.register_error_handler(errors.EndpointError, endpoint_error)
    app.register_error_handler(HTTPException, http_error)
    app.register_error_handler(Exception, lambda error: endpoint_error(unexpected(error)))
