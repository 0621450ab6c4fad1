"""Errors in Flask's views: each becomes an error object."""

from __future__ import annotations

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound, RequestEntityTooLarge

from container.requests.error_responses import error_reply, unexpected
from container.requests.request_record import record_of
from handler import errors


def register(app: Flask, max_body: int) -> None:
    """Registers the handlers."""

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
        if isinstance(error, RequestEntityTooLarge):
            return endpoint_error(errors.BodyTooLarge(max_body))
        return endpoint_error(errors.InvalidBody(error.description or error.name))

    app.register_error_handler(errors.EndpointError, endpoint_error)
    app.register_error_handler(HTTPException, http_error)
    app.register_error_handler(Exception, lambda error: endpoint_error(unexpected(error)))
