"""One request between gunicorn's thread and the engine's loop: the thread begins it and sleeps until it has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from threading import Event
from typing import Any

from flask import Response

from container.connection.gunicorn_connection import GunicornConnection
from container.connection.socket_writer import SocketWriter
from container.requests.error_responses import error_response, unexpected
from container.requests.http_limits import Deadline
from container.requests.request_record import record_of
from container.streaming.outcome import answered, streamed
from container.streaming.sinks import BufferedSink, CollectingSink, QueueSink, StreamingSink
from handler.engine.engine import Engine
from handler.errors import EndpointError
from handler.schemas.reply import AnyCall, RunningCall
from handler.startup.admission import Admission

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
STREAM_HEADERS = (("Cache-Control", "no-cache"), ("X-Accel-Buffering", "no"))
OF_THE_BODY = frozenset({"Content-Type", "Content-Length", *(name for name, _ in STREAM_HEADERS)})
OK = "200 OK"


class TokenResponse(Response):
    """A WSGI response whose body the engine makes. It holds its admission from the view to its last byte.

    Under gunicorn the loop writes to the connection itself; under any other server the same bytes come out of an
    ordinary WSGI iterator.

    :param deadline: when the request is ended; None: never.
    :param collected: a stream's events are sent as one body with its length, as asynchronous inference wants it.
    """

    def __init__(
        self,
        engine: Engine,
        call: AnyCall,
        admission: Admission,
        deadline: Deadline | None = None,
        *,
        collected: bool = False,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._call = call
        self._admission = admission
        self._deadline = deadline
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
                body = self._answer(connection, environ, start_response)
            elif connection is not None:
                body = self._stream(connection, environ, start_response)
            else:
                body = self._iterate(environ, start_response)
        except EndpointError as error:
            body = self._refuse(error, environ, start_response)
        except Exception as error:  # Flask's handlers are behind us here
            body = self._refuse(unexpected(error), environ, start_response)
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
        ticket = stream.ticket = self._call.request(self._engine, stream)
        writer = stream.writer = SocketWriter(
            connection.socket,
            self._engine.loop.loop,
            connection.head(OK, headers),
            connection.chunked,
            stream.left,
            done.set,
        )
        self._begin(writer, ticket)
        done.wait()
        connection.take_back()
        streamed(record_of(environ), self._call, stream, stream.error, stream.gone)
        if stream.error is not None and not writer.started:
            return self._refuse(stream.error, environ, start_response)
        connection.finished(OK, headers, writer.sent, whole=stream.whole)
        return ()

    def _answer(
        self, connection: GunicornConnection | None, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        done = Event()
        answer = CollectingSink(self._call.reply) if self._call.stream else BufferedSink(self._call.reply)
        ticket = answer.ticket = self._call.request(self._engine, answer)
        if connection is None:
            answer.release = done.set
            self._engine.loop.call(self._started, ticket)
        else:
            writer = SocketWriter(connection.socket, self._engine.loop.loop, b"", False, answer.left, done.set)
            answer.release = writer.abandon
            self._begin(writer, ticket)
        done.wait()
        answered(record_of(environ), self._call, answer)
        if connection is not None:
            connection.take_back()
            if answer.gone:
                connection.finished(OK, [], 0, whole=False)
                return ()
        if answer.error is not None:
            return self._refuse(answer.error, environ, start_response)
        self.set_data(answer.body())
        return super().__call__(environ, start_response)

    def _begin(self, writer: SocketWriter, ticket: RunningCall) -> None:
        def begin() -> None:
            try:
                writer.watch()
                self._started(ticket)
            except Exception as error:  # or the thread would wait for ever
                ticket.fail(unexpected(error))

        self._engine.loop.call(begin)

    def _started(self, ticket: RunningCall) -> None:
        if self._deadline is None:
            ticket.begin()
        else:
            ticket.begin(self._deadline.left(), self._deadline.error())

    def _refuse(self, error: EndpointError, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Flask's hooks have put their headers on the reply that there is not: they are the error's as well."""
        record_of(environ).failed(error)
        response = error_response(error)
        response.headers.extend((name, value) for name, value in self.headers if name not in OF_THE_BODY)
        return response(environ, start_response)

    def _iterate(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        stream = QueueSink(self._call.reply)
        ticket = self._call.request(self._engine, stream)
        self._engine.loop.call(self._started, ticket)
        first = stream.events.get()
        if isinstance(first, EndpointError):
            return self._refuse(first, environ, start_response)
        start_response(OK, [*self.headers.items()])
        ended = partial(streamed, record_of(environ), self._call, stream)
        return IteratedStream(first, stream, self._engine, ticket, self._admission, ended)


class IteratedStream:
    """The WSGI body over a `QueueSink`; closing it early frees the engine's slot."""

    def __init__(
        self,
        first: bytes | None,
        stream: QueueSink,
        engine: Engine,
        ticket: RunningCall,
        admission: Admission,
        ended: Callable[[EndpointError | None, str | None], None],
    ) -> None:
        self._first = first
        self._stream = stream
        self._engine = engine
        self._ticket = ticket
        self._admission: Admission | None = admission
        self._ended = ended
        self._error: EndpointError | None = None

    def __iter__(self) -> Iterator[bytes]:
        event: bytes | EndpointError | None = self._first
        while event is not None:
            if isinstance(event, EndpointError):
                self._error = event
                yield self._stream.reply.broken(event)
                return
            yield event
            event = self._stream.events.get()

    def close(self) -> None:
        if self._admission is not None:
            self._admission.leave()
            self._admission = None
            self._engine.loop.call(self._ticket.cancel)
            left = None if self._error or self._stream.finish else "the reply was closed before its end"
            self._ended(self._error, left)
