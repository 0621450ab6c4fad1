"""The Flask views of the SageMaker Runtime protocol: they forward invocations to containers."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from itertools import chain

from flask import Flask, g, request
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from local_sagemaker.gateway import container_connection as upstream
from local_sagemaker.gateway import event_stream
from local_sagemaker.gateway import gateway_errors as errors
from local_sagemaker.gateway import invocation_headers as headers
from local_sagemaker.gateway.container_connection import ContainerConnection, RuntimeLimits
from local_sagemaker.gateway.container_selection import FixedRoutes, InvocationRoute, Routes
from local_sagemaker.gateway.event_stream import Cut
from local_sagemaker.gateway.gateway_errors import Endpoint
from local_sagemaker.hosting.instances.host_settings import ContainerAddress
from local_sagemaker.http_server import read_at_most
from local_sagemaker.local_only import is_foreign

log = logging.getLogger(__name__)

# The headers of an OpenAI server that its clients read.
OPENAI_REPLY = ("Content-Type", "Retry-After")


class Gateway:
    def __init__(self, routes: Routes, limits: RuntimeLimits, cut: Cut) -> None:
        self._routes = routes
        self._limits = limits
        self._cut = cut

    def invoke(self, name: str) -> Response:
        """InvokeEndpoint."""
        body = read_body(self._limits.body_bytes)
        passed = headers.for_container(headers.INVOKE, name, request.headers)
        route = self._routes.route(name, request.headers)
        with reach(route, self._limits, self._limits.regular_seconds) as connection:
            head = self._post(route, connection, passed, body)
            response = Response(b"".join(connection.parts()))
        del response.headers["Content-Type"]  # The container's Content-Type replaces it, if there is one.
        return finish(response, route, head, headers.REGULAR_REPLY)

    def invoke_with_response_stream(self, name: str) -> Response:
        """InvokeEndpointWithResponseStream."""
        body = read_body(self._limits.body_bytes)
        passed = headers.for_container(headers.STREAM, name, request.headers)
        route, seconds = self._routes.route(name, request.headers), self._limits.stream_seconds
        with ExitStack() as stack:
            connection = stack.enter_context(reach(route, self._limits, seconds))
            head = self._post(route, connection, passed, body)
            response = Response(self._frames(route, connection), content_type="application/vnd.amazon.eventstream")
            # Not left to the generator: one that never started runs no `finally`.
            response.call_on_close(stack.pop_all().close)
        if content_type := head.headers.get("Content-Type"):
            response.headers[headers.STREAM_CONTENT_TYPE] = content_type
        return finish(response, route, head, headers.STREAMED_REPLY)

    def openai(self, name: str, component: str | None = None) -> Response:
        """``/endpoints/{name}/openai/v1/chat/completions``: forwards a chat to the container unchanged.

        The URL of an inference component has ``/inference-components/{component}`` after the endpoint's name.

        Returns the container's own status, type and body, also for errors: OpenAI clients know its error object. If the
        body is cut off, the reply is cut off, too, without its end mark.
        """
        body = read_body(self._limits.body_bytes)
        asked = Headers(request.headers)
        if component is not None:
            asked[headers.COMPONENT] = component
        passed = headers.for_container(headers.STREAM, name, asked)
        if accept := request.headers.get("Accept"):
            passed.append(("Accept", accept))
        route = self._routes.route(name, asked)
        with ExitStack() as stack:
            connection = stack.enter_context(reach(route, self._limits, self._limits.stream_seconds))
            head = connection.send("POST", "/v1/chat/completions", [*passed, *route.more_headers], body)
            response = Response(chain((b"",), connection.parts()), head.status)
            response.call_on_close(stack.pop_all().close)
        del response.headers["Content-Type"]
        return _with_headers(response, head, OPENAI_REPLY)

    def _post(
        self, route: InvocationRoute, connection: ContainerConnection, passed: list[tuple[str, str]], body: bytes
    ) -> HTTPResponse:
        head = connection.send("POST", route.path, [*passed, *route.more_headers], body)
        route.answered(head)
        if head.status >= 400:
            raise errors.ModelError(route.endpoint, head.status, connection.text())
        return head

    def _encode(self, arrived: bytes) -> bytes:
        return b"".join(map(event_stream.payload_part, self._cut(arrived)))

    def _frames(self, route: InvocationRoute, connection: ContainerConnection) -> Iterator[bytes]:
        """Yields the reply as an event stream. If the reply is incomplete, the last frame is an exception."""
        yield b""  # Sends the head now: the first token may take a while.
        try:
            yield from map(self._encode, connection.parts())
        except upstream.TimedOut:
            late = f"the model did not finish its response within {self._limits.stream_seconds:g} seconds"
            yield event_stream.model_stream_error("ModelInvocationTimeExceeded", late)
        except upstream.ConnectionBroken as error:
            yield event_stream.model_stream_error("StreamBroken", f"container primary: {error}")
        except Exception:
            log.exception("a stream of endpoint %s failed", route.endpoint.name)
            yield event_stream.exception("InternalStreamFailure", errors.FAILED)


def read_body(limit: int) -> bytes:
    """Returns the body of the current request.

    :raises ValidationError: it has more than ``limit`` bytes.
    """
    body = read_at_most(limit)
    if body is None:
        raise errors.ValidationError(errors.OVERSIZE_BODY.format(g.request_id, limit))
    return body


@contextmanager
def reach(route: InvocationRoute, limits: RuntimeLimits, seconds: float) -> Iterator[ContainerConnection]:
    """Connects to a container, and releases the route afterwards. Failures are raised as SageMaker's errors."""
    try:
        with _connect(route, limits, seconds) as connection:
            yield connection
    except upstream.Unreachable as error:
        raise errors.ServiceUnavailable(route.endpoint, error) from error
    except upstream.TimedOut as error:
        raise errors.ModelError(route.endpoint, 0, errors.TIMED_OUT) from error
    except upstream.ConnectionBroken as error:
        incomplete = f"Container primary did not complete its response: {error}"
        raise errors.ModelError(route.endpoint, 0, incomplete) from error
    finally:
        route.release()


def _connect(route: InvocationRoute, limits: RuntimeLimits, seconds: float) -> ContainerConnection:
    """Tries one instance after the other. Nothing was sent yet, so no request is executed twice."""
    while True:
        try:
            return ContainerConnection(route.container, limits.connect_seconds, seconds)
        except upstream.Unreachable:
            if not route.try_another():
                raise


def finish(response: Response, route: InvocationRoute, head: HTTPResponse, names: tuple[str, ...]) -> Response:
    response.headers[headers.INVOKED_VARIANT] = route.endpoint.variant
    return _with_headers(response, head, names)


def _with_headers(response: Response, head: HTTPResponse, names: tuple[str, ...]) -> Response:
    for name in names:
        if (value := head.headers.get(name)) is not None:
            response.headers[name] = value
    return response


def create_app(container: ContainerAddress, endpoint: Endpoint, limits: RuntimeLimits, cut: Cut) -> Flask:
    """Returns the runtime of one container."""
    app = Flask(__name__, static_folder=None)
    mount(app, Gateway(FixedRoutes(endpoint, container), limits, cut))
    return app


def mount(app: Flask, gateway: Gateway) -> None:
    """Adds the runtime's paths and error handlers to an application."""
    app.url_map.merge_slashes = False
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.post("/endpoints/<name>/invocations")(gateway.invoke)
    app.post("/endpoints/<name>/invocations-response-stream")(gateway.invoke_with_response_stream)

    @app.before_request
    def name_request() -> None:
        g.request_id = str(uuid.uuid4())

    @app.before_request
    def refuse_pages() -> None:
        host = request.headers.get("Host", "")
        if is_foreign(host, request.headers.get("Origin")):
            raise errors.ForeignClient(f"A web page, or a client of the host {host[:100]!r}, is not served here.")

    @app.after_request
    def return_request_id(response: Response) -> Response:
        response.headers["x-amzn-RequestId"] = g.request_id
        return response

    @app.errorhandler(errors.GatewayError)
    def refuse(error: errors.GatewayError) -> Response:
        return error.reply()

    @app.errorhandler(HTTPException)
    def refuse_http(error: HTTPException) -> Response:
        if error.code in (404, 405):
            unknown = f"{request.method} {request.path} is not an operation of this SageMaker runtime"
            return errors.UnknownOperation(unknown).reply()
        return errors.ValidationError(error.description or error.name).reply()

    @app.errorhandler(Exception)
    def fail(error: Exception) -> Response:
        log.exception("%s %s failed", request.method, request.path)
        return errors.RuntimeInternalFailure(errors.FAILED).reply()
