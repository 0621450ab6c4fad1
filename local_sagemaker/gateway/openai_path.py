"""``/endpoints/{name}/openai/v1/...``: forwards an OpenAI client's requests to the container unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from flask import request
from werkzeug.wrappers import Response

from local_sagemaker.gateway import gateway_errors as errors
from local_sagemaker.gateway import invocation_headers as headers
from local_sagemaker.gateway.container_connection import ContainerConnection
from local_sagemaker.gateway.container_selection import Routes
from local_sagemaker.gateway.gateway_settings import RuntimeLimits
from local_sagemaker.gateway.runtime_gateway import reach, read_body

RETURNED = ("Content-Type", "Retry-After")


class OpenAIPath:
    def __init__(self, routes: Routes, limits: RuntimeLimits) -> None:
        self._routes = routes
        self._limits = limits

    def forward(self, name: str, path: str) -> Response:
        """Returns the container's own status, type and body, also for errors: OpenAI clients know its error object."""
        body = read_body(self._limits.body_bytes)
        if ".." in path.split("/"):
            raise errors.ValidationError(f"The path {path!r} is not one of OpenAI's.")
        passed = headers.for_container(headers.STREAM, name, request.headers)
        if accept := request.headers.get("Accept"):
            passed.append(("Accept", accept))
        route = self._routes.route(name, request.headers)
        with ExitStack() as stack:
            reached = reach(route, self._limits, self._limits.stream_seconds)
            connection = stack.enter_context(reached)
            head = connection.send(request.method, f"/v1/{path}", [*passed, *route.more_headers], body)
            response = Response(whole_or_cut(connection), head.status)
            response.call_on_close(stack.pop_all().close)
        del response.headers["Content-Type"]
        for key in RETURNED:
            if (value := head.get(key)) is not None:
                response.headers[key] = value
        return response


def whole_or_cut(connection: ContainerConnection) -> Iterator[bytes]:
    """Yields the body as it arrives. If it is cut off, the reply is cut off, too, without its end mark."""
    yield b""
    yield from connection.parts()
