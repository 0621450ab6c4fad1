"""A WSGI response whose body the engine makes: gunicorn's thread begins the call and sleeps until it has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import Event
from typing import Any

from flask import Response

from container.connection.gunicorn_connection import GunicornConnection
from container.connection.socket_writer import SocketWriter
from container.recovery.recovery import Recovery
from container.requests.error_responses import error_response, unexpected
from container.requests.http_limits import Deadline
from container.requests.request_record import record_of
from container.streaming.call_lifecycle import begin_call, record_outcome, run_again
from container.streaming.sinks import BufferedSink, CollectingSink, QueueSink, StreamingSink
from handler.engine.engine import Engine
from handler.errors import EndpointError
from handler.schemas.reply import AnyCall
from handler.startup.admission import Admission

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
STREAM_HEADERS = (("Cache-Control", "no-cache"), ("X-Accel-Buffering", "no"))
BODY_HEADERS = frozenset({"Content-Type", "Content-Length", *(name for name, _ in STREAM_HEADERS)})
OK = "200 OK"


class TokenResponse(Response):
    """A WSGI response whose body the engine makes. It holds its admission until its last byte.

    Under gunicorn the loop writes to the connection itself. Under any other server an ordinary WSGI iterator yields
    the same bytes.

    :param collected: send a stream's events as one body with a Content-Length, as asynchronous inference needs it.
    """

    def __init__(
        self,
        engine: Engine,
        call: AnyCall,
        admission: Admission,
        deadline: Deadline,
        recovery: Recovery,
        *,
        collected: bool = False,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._call = call
        self._admission = admission
        self._deadline = deadline
        self._recovery = recovery
        self._collected = collected
        if call.stream:
            self.headers["Content-Type"] = call.reply.stream_content_type
            self.headers.extend(STREAM_HEADERS)
        else:
            self.headers["Content-Type"] = call.reply.content_type

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        connection = GunicornConnection.of(environ, start_response)
        body: Iterable[bytes] | None = None
        try:
            if not self._call.stream or self._collected:
                body = self._send_whole(connection, environ, start_response)
            elif connection is not None:
                body = self._stream(connection, environ, start_response)
            else:
                body = self._iterate(environ, start_response)
        except EndpointError as error:
            body = self._send_error(error, environ, start_response)
        except Exception as error:  # Flask's error handlers do not run any more
            body = self._send_error(unexpected(error), environ, start_response)
        finally:
            if not isinstance(body, IteratedStream):
                self._admission.leave()
        return body

    def _stream(
        self, connection: GunicornConnection, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        headers = [*self.headers.items()]
        done = Event()
        stream = StreamingSink(self._call.reply)
        running = stream.running = self._call.request(self._engine, stream)
        writer = stream.writer = SocketWriter(
            connection.socket,
            self._engine.loop.loop,
            connection.head(OK, headers),
            connection.chunked,
            stream.client_left,
            done.set,
        )
        self._engine.loop.call(begin_call, running, self._deadline, writer.watch)
        done.wait()
        connection.take_back()
        record_outcome(record_of(environ), self._call, stream)
        unsent = None if writer.started else connection
        if run_again(self._recovery, stream.error, environ, unsent, self._deadline):
            return ()
        if stream.error is not None and not writer.started:
            return self._send_error(stream.error, environ, start_response)
        connection.finished(OK, headers, writer.sent, whole=stream.whole)
        return ()

    def _send_whole(
        self, connection: GunicornConnection | None, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        done = Event()
        sink = CollectingSink(self._call.reply) if self._call.stream else BufferedSink(self._call.reply)
        running = sink.running = self._call.request(self._engine, sink)
        if connection is None:
            sink.release = done.set
            self._engine.loop.call(begin_call, running, self._deadline)
        else:
            writer = SocketWriter(connection.socket, self._engine.loop.loop, b"", False, sink.client_left, done.set)
            sink.release = writer.abandon
            self._engine.loop.call(begin_call, running, self._deadline, writer.watch)
        done.wait()
        record_outcome(record_of(environ), self._call, sink)
        if connection is not None:
            connection.take_back()
            if sink.left_reason is not None:
                connection.finished(OK, [], 0, whole=False)
                return ()
        if run_again(self._recovery, sink.error, environ, connection, self._deadline):
            return ()
        if sink.error is not None:
            return self._send_error(sink.error, environ, start_response)
        self.set_data(sink.body())
        return super().__call__(environ, start_response)

    def _send_error(self, error: EndpointError, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Sends an error in place of this response, with the headers that Flask's hooks have put on this response."""
        record_of(environ).failed(error)
        response = error_response(error, environ["PATH_INFO"])
        response.headers.extend((name, value) for name, value in self.headers if name not in BODY_HEADERS)
        return response(environ, start_response)

    def _iterate(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        stream = QueueSink(self._call.reply)
        running = self._call.request(self._engine, stream)
        self._engine.loop.call(begin_call, running, self._deadline)
        first = stream.events.get()
        if isinstance(first, EndpointError):
            return self._send_error(first, environ, start_response)
        start_response(OK, [*self.headers.items()])

        def end() -> None:
            self._admission.leave()
            self._engine.loop.call(running.cancel)
            record_outcome(record_of(environ), self._call, stream)

        return IteratedStream(first, stream, end)


class IteratedStream:
    """The WSGI body over a `QueueSink`. Closing it early frees the engine's slot.

    :param end: called once, when the body is closed.
    """

    def __init__(self, first: bytes | None, stream: QueueSink, end: Callable[[], None]) -> None:
        self._first = first
        self._stream = stream
        self._end: Callable[[], None] | None = end

    def __iter__(self) -> Iterator[bytes]:
        event: bytes | EndpointError | None = self._first
        while event is not None:
            if isinstance(event, EndpointError):
                self._stream.error = event
                yield self._stream.reply.broken(event)
                return
            yield event
            event = self._stream.events.get()

    def close(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            if self._stream.error is None and self._stream.finish is None:
                self._stream.left_reason = "the reply was closed before its end"
            end()
