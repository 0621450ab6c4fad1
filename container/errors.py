"""The error tree mapped to HTTP, here and nowhere else: OpenAI's error object, never a traceback."""

from __future__ import annotations

import logging

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound, RequestEntityTooLarge

from handler.errors import BodyTooLarge, EndpointError, InvalidBody, RouteNotFound, ServerError
from handler.errors import MethodNotAllowed as WrongMethod
from handler.schemas.reply import encode

logger = logging.getLogger(__name__)


def error_response(error: EndpointError) -> Response:
    """The reply for an error of the tree."""
    response = Response(encode(error.document()), status=error.status, content_type="application/json")
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    if error.status in {408, 413}:  # the rest of the body is not worth reading
        response.headers["Connection"] = "close"
    return response


def register(app: Flask, max_body: int) -> None:
    """Every error that a view can raise ends as an error object."""

    def known(error: EndpointError) -> Response:
        return error_response(error)

    def http(error: HTTPException) -> Response:
        if isinstance(error, NotFound):
            return error_response(RouteNotFound(request.method, request.path))
        if isinstance(error, MethodNotAllowed):
            allowed = tuple(sorted(set(error.valid_methods or ()) - {"HEAD", "OPTIONS"}))
            return error_response(WrongMethod(request.method, request.path, allowed))
        if isinstance(error, RequestEntityTooLarge):
            return error_response(BodyTooLarge(max_body))
        return error_response(InvalidBody(error.description or error.name))

    def unknown(error: Exception) -> Response:
        logger.exception("a view raised %s", type(error).__name__)
        return error_response(ServerError("An unexpected error happened here; it is in the container's log."))

    app.register_error_handler(EndpointError, known)
    app.register_error_handler(HTTPException, http)
    app.register_error_handler(Exception, unknown)
