"""The Flask views of the SageMaker Runtime protocol: they forward invocations to containers."""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from flask import Flask, g, request
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from local_sagemaker.gateway import container_connection as upstream
from local_sagemaker.gateway import event_stream
from local_sagemaker.gateway import gateway_errors as errors
from local_sagemaker.gateway import invocation_headers as headers
from local_sagemaker.gateway.body_reader import read_body
from local_sagemaker.gateway.container_connection import ContainerConnection, InvocationDeadline
from local_sagemaker.gateway.container_selection import FixedRoutes, InvocationRoute, Routes
from local_sagemaker.gateway.gateway_settings import ContainerAddress, Endpoint, RuntimeLimits
from local_sagemaker.gateway.http_reply import ReplyHead
from local_sagemaker.gateway.idle_connections import IdleConnections
from local_sagemaker.gateway.payload_parts import Cut
from local_sagemaker.gateway.stream_pump import Pump

log = logging.getLogger(__name__)


class Gateway:
    def __init__(self, routes: Routes, limits: RuntimeLimits, cut: Cut) -> None:
        self._routes = routes
        self._limits = limits
        self._cut = cut
        self._pump = Pump()

    def invoke(self, name: str) -> Response:
        """InvokeEndpoint."""
        passed, body = self._admit(headers.REGULAR)
        route = self._routes.route(name, request.headers)
        with reach(route, self._limits, self._limits.regular_seconds, client_socket()) as connection:
            head = self._post(route, connection, passed, body)
            response = Response(b"".join(connection.parts()))
        del response.headers["Content-Type"]  # The container's Content-Type replaces it, if there is one.
        return finish(response, route, head, headers.REGULAR_REPLY)

    def invoke_with_response_stream(self, name: str) -> Response:
        """InvokeEndpointWithResponseStream."""
        passed, body = self._admit(headers.STREAMED)
        headers.refuse_new_session(request.headers)
        route, seconds = self._routes.route(name, request.headers), self._limits.stream_seconds
        with ExitStack() as stack:
            reached = reach(route, self._limits, seconds, client_socket(), self._pump.idle)
            connection = stack.enter_context(reached)
            head = self._post(route, connection, passed, body)
            frames = self._frames(route, connection, writable_client(), g.get("stream_fault"))
            response = Response(frames, content_type="application/vnd.amazon.eventstream")
            # Not left to the generator: one that never started runs no `finally`.
            response.call_on_close(stack.pop_all().close)
        if content_type := head.get("Content-Type"):
            response.headers[headers.STREAM_CONTENT_TYPE] = content_type
        return finish(response, route, head, headers.STREAMED_REPLY)

    def _admit(self, table: tuple[headers.RequestHeader, ...]) -> tuple[list[tuple[str, str]], bytes]:
        """Checks a request as SageMaker does. Returns what the container gets."""
        body = read_body(self._limits.body_bytes)
        return list(headers.for_container(request.headers, table)), body

    def _post(
        self, route: InvocationRoute, connection: ContainerConnection, passed: list[tuple[str, str]], body: bytes
    ) -> ReplyHead:
        if route.delay:
            time.sleep(route.delay)
        head = connection.post(route.path, [*passed, *route.more_headers], body)
        route.answered(head)
        if head.status >= 400:
            raise errors.ModelError(route.endpoint, head.status, connection.text())
        return head

    def _encode(self, arrived: bytes) -> bytes:
        return b"".join(map(event_stream.payload_part, self._cut(arrived)))

    def _frames(
        self, route: InvocationRoute, connection: ContainerConnection, client: socket.socket | None, fault: bytes | None
    ) -> Iterator[bytes]:
        """Yields the reply as an event stream. If the reply is incomplete, the last frame is an exception.

        :param client: the client's socket, to which the pump writes. Without one, the iterator yields the frames.
        :param fault: the frame of an injected error, which ends the stream after its first part.
        """
        yield b""  # Sends the head now: the first token may take a while.
        try:
            if fault is not None:
                yield self._encode(next(connection.parts(), b""))
                yield fault
            elif client is not None:
                self._pump.carry(connection, client, self._encode)
            else:
                yield from map(self._encode, connection.parts())
        except upstream.TimedOut:
            late = f"the model did not finish its response within {self._limits.stream_seconds:g} seconds"
            yield event_stream.model_stream_error("ModelInvocationTimeExceeded", late)
        except upstream.ConnectionBroken as error:
            yield event_stream.model_stream_error("StreamBroken", f"container primary: {error}")
        except upstream.ClientGone:
            return
        except Exception:
            log.exception("a stream of endpoint %s failed", route.endpoint.name)
            yield event_stream.exception("InternalStreamFailure", errors.RuntimeInternalFailure.text)


def client_socket() -> socket.socket | None:
    client = request.environ.get("gunicorn.socket")
    return client if isinstance(client, socket.socket) else None


def writable_client() -> socket.socket | None:
    """Returns the client's socket, if chunks can be written to it directly as part of gunicorn's reply."""
    return client_socket() if request.environ.get("SERVER_PROTOCOL") == "HTTP/1.1" else None


@contextmanager
def reach(
    route: InvocationRoute,
    limits: RuntimeLimits,
    seconds: float,
    client: socket.socket | None,
    idle: IdleConnections | None = None,
) -> Iterator[ContainerConnection]:
    """Connects to a container, and releases the route afterwards. Failures are raised as SageMaker's errors.

    :param client: the client's socket. A disconnect ends the wait.
    :param idle: idle connections that can be reused.
    """
    try:
        with _connect(route, limits, seconds, client, idle) as connection:
            yield connection
    except upstream.Unreachable as error:
        raise errors.ServiceUnavailable(route.endpoint, error) from error
    except upstream.TimedOut as error:
        raise errors.InvocationTimedOut(route.endpoint) from error
    except upstream.ConnectionBroken as error:
        raise errors.InvalidContainerReply(route.endpoint, str(error)) from error
    finally:
        route.release()


def _connect(
    route: InvocationRoute,
    limits: RuntimeLimits,
    seconds: float,
    client: socket.socket | None,
    idle: IdleConnections | None,
) -> ContainerConnection:
    """Tries one instance after the other. Nothing was sent yet, so no request is executed twice."""
    while True:
        try:
            until = InvocationDeadline.after(seconds)
            return ContainerConnection(route.container, limits.connect_seconds, until, client, idle)
        except upstream.Unreachable:
            if not route.try_another():
                raise


def finish(response: Response, route: InvocationRoute, head: ReplyHead, names: tuple[str, ...]) -> Response:
    for name in names:
        if (value := head.get(name)) is not None:
            response.headers[name] = value
    response.headers[headers.INVOKED_VARIANT] = route.endpoint.variant
    return response


def create_app(container: ContainerAddress, endpoint: Endpoint, limits: RuntimeLimits, cut: Cut) -> Flask:
    """Returns the runtime of one container. It notices a client's disconnect only under gunicorn."""
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
            return errors.UnknownOperation(request.method, request.path).reply()
        return errors.ValidationError(error.description or error.name).reply()

    @app.errorhandler(upstream.ClientGone)
    def answer_nobody(error: upstream.ClientGone) -> Response:
        return Response(status=499)

    @app.errorhandler(Exception)
    def fail(error: Exception) -> Response:
        log.exception("%s %s failed", request.method, request.path)
        return errors.RuntimeInternalFailure().reply()
