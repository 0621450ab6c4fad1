"""The SageMaker Runtime protocol in front of one container, as a Flask application."""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from flask import Flask, g, request
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from local_sagemaker import errors, eventstream, faults, headers, upstream
from local_sagemaker.settings import GatewaySettings
from local_sagemaker.upstream import ContainerConnection, Deadline, Head

log = logging.getLogger(__name__)

READ_AT_ONCE = 1024 * 1024


class Gateway:
    def __init__(self, settings: GatewaySettings) -> None:
        self._endpoint = settings.endpoint
        self._container = settings.container
        self._limits = settings.limits
        self._cut = settings.cut

    def invoke(self, name: str) -> Response:
        """InvokeEndpoint."""
        passed, body = self._admit(name, headers.REGULAR)
        with self._in_sagemakers_words(), self._connect(self._limits.regular_seconds) as connection:
            head = self._post(connection, passed, body)
            response = Response(b"".join(connection.parts()))
        del response.headers["Content-Type"]  # The container's takes its place, if it has set one.
        return self._finish(response, head, headers.REGULAR_REPLY)

    def invoke_with_response_stream(self, name: str) -> Response:
        """InvokeEndpointWithResponseStream."""
        passed, body = self._admit(name, headers.STREAMED)
        headers.refuse_new_session(request.headers)
        with self._in_sagemakers_words(), ExitStack() as stack:
            connection = stack.enter_context(self._connect(self._limits.stream_seconds))
            head = self._post(connection, passed, body)
            response = Response(self._frames(connection), content_type="application/vnd.amazon.eventstream")
            # Not left to the generator: one that was never begun runs no `finally`.
            response.call_on_close(stack.pop_all().close)
        if content_type := head.get("Content-Type"):
            response.headers[headers.STREAM_CONTENT_TYPE] = content_type
        return self._finish(response, head, headers.STREAMED_REPLY)

    def _admit(self, name: str, table: tuple[headers.RequestHeader, ...]) -> tuple[list[tuple[str, str]], bytes]:
        """What goes to the container, of a request that SageMaker would let through."""
        body = self._read_body()
        if name != self._endpoint.name:
            raise errors.EndpointNotFound(name, self._endpoint.account)
        variant = request.headers.get(headers.TARGET_VARIANT, self._endpoint.variant)
        if variant != self._endpoint.variant:
            raise errors.VariantNotFound(variant, self._endpoint)
        return list(headers.for_container(request.headers, table)), body

    def _read_body(self) -> bytes:
        """A body that is too long is still read to its end: a client that is writing hears no reply."""
        parts, size = [], 0
        while part := request.stream.read(READ_AT_ONCE):
            size += len(part)
            if size <= self._limits.body_bytes:
                parts.append(part)
        if size > self._limits.body_bytes:
            raise errors.OversizeBody(g.request_id, self._limits.body_bytes)
        return b"".join(parts)

    def _connect(self, seconds: float) -> ContainerConnection:
        client = request.environ.get("gunicorn.socket")
        return ContainerConnection(
            self._container,
            self._limits.connect_seconds,
            Deadline.after(seconds),
            client if isinstance(client, socket.socket) else None,
        )

    def _post(self, connection: ContainerConnection, passed: list[tuple[str, str]], body: bytes) -> Head:
        head = connection.post("/invocations", passed, body)
        if head.status >= 400:
            raise errors.ModelError(self._endpoint, head.status, connection.text())
        return head

    def _frames(self, connection: ContainerConnection) -> Iterator[bytes]:
        """The reply as an event stream, whose last frame says so if it is not whole."""
        yield b""  # Sends the head now: the first token may be a while.
        try:
            for arrived in connection.parts():
                for part in self._cut(arrived):
                    yield eventstream.payload_part(part)
        except upstream.TimedOut:
            yield faults.StreamTimedOut(self._limits.stream_seconds).frame()
        except upstream.Broken as error:
            yield faults.StreamBroken(f"container primary: {error}").frame()
        except upstream.ClientGone:
            return
        except Exception:
            log.exception("a stream of endpoint %s failed", self._endpoint.name)
            yield faults.InternalStreamFailure().frame()

    @contextmanager
    def _in_sagemakers_words(self) -> Iterator[None]:
        try:
            yield
        except upstream.Unreachable as error:
            raise errors.ServiceUnavailable(self._endpoint, str(error)) from error
        except upstream.TimedOut as error:
            raise errors.InvocationTimedOut(self._endpoint) from error
        except upstream.Broken as error:
            raise errors.BrokenReply(self._endpoint, str(error)) from error

    def _finish(self, response: Response, head: Head, names: tuple[str, ...]) -> Response:
        for name in names:
            if (value := head.get(name)) is not None:
                response.headers[name] = value
        response.headers[headers.INVOKED_VARIANT] = self._endpoint.variant
        return response


def create_app(settings: GatewaySettings) -> Flask:
    """One application. Only under gunicorn, which reveals the client's socket, does it see a hang-up."""
    app = Flask(__name__, static_folder=None)
    app.url_map.merge_slashes = False
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    gateway = Gateway(settings)
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
        return errors.InternalFailure().reply()

    return app
