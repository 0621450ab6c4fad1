"""The WSGI response over a WebSocket: each message is a body of /invocations, answered one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from queue import Empty
from typing import Any

from flask import Response

from container.connection.gunicorn_connection import GunicornConnection
from container.requests.error_responses import error_response, unexpected
from container.requests.http_limits import deadline, max_body
from container.requests.request_record import RequestRecord, record_of
from container.service import Service
from container.streaming.outcome import count
from container.streaming.websocket import WebSocket
from container.streaming.websocket_sink import WebSocketSink
from container.telemetry.tracing.traced_call import followed
from handler.engine.engine import Engine
from handler.errors import Draining, EndpointError
from handler.schemas.dispatch import Parse
from handler.schemas.json_body import decode
from handler.schemas.reply import encode
from handler.startup.lifecycle import ServingStatus

GOING_AWAY = 1001
# How soon a connection on which nothing is said notices that the container is shutting down.
LOOK_SECONDS = 0.5


class WebSocketSession(Response):
    """One bidirectional stream. It holds one admission from the handshake to its end, whatever is said on it.

    Each message is a request of its own in the log, in the figures and in traces.
    """

    def __init__(self, service: Service, engine: Engine, parse: Parse) -> None:
        super().__init__()
        self._service = service
        self._engine = engine
        self._parse = parse
        self._socket: WebSocket
        self._environ: dict[str, Any] = {}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        connection = GunicornConnection.of(environ, start_response)
        self._environ = environ
        try:
            if connection is None:
                return error_response(unexpected(RuntimeError("no socket")))(environ, start_response)
            loop = self._engine.loop
            self._socket = WebSocket(connection.socket, loop.loop, max_body(self._service.config))
            loop.call(self._socket.open, environ)
            try:
                self._converse()
            finally:
                loop.call(self._socket.close)
                self._socket.released.wait()
                connection.take_back()
            connection.finished("101 Switching Protocols", [], 0, whole=False)
            return ()
        finally:
            self._service.admission.leave()

    def _converse(self) -> None:
        loop = self._engine.loop
        while True:
            try:
                message = self._socket.messages.get(timeout=LOOK_SECONDS)
            except Empty:
                if self._service.lifecycle.status.state is not ServingStatus.READY:
                    loop.call(self._socket.close, GOING_AWAY, Draining().message)
                    return
                continue
            if message is None:
                return
            loop.call(self._socket.resume)
            record = self._record()
            try:
                self._answer(message, record)
            except EndpointError as error:
                self._say(error, record)
            except Exception as error:
                self._say(unexpected(error), record)
            finally:
                self._service.observer.ended(record)

    def _record(self) -> RequestRecord:
        """Of a message, whose headers are the handshake's."""
        record, observer = RequestRecord(self._environ), self._service.observer
        record.route = record_of(self._environ).route
        record.status = 200
        if observer.tracer is not None:
            observer.tracer.began(record, self._environ)
        return record

    def _answer(self, message: bytes, record: RequestRecord) -> None:
        began = time.monotonic()
        self._service.ready_engine()
        call = self._parse(decode(message), self._engine)
        until = deadline(self._service.config, None, began, stream=True)
        record.called(call)
        if record.span is not None:
            call = followed(call, record, self._engine.base_names[0])
        self._service.observer.started(record, message)
        answer = WebSocketSink(call.reply, call.stream, self._socket.send)
        ticket = answer.ticket = call.request(self._engine, answer)

        def begin() -> None:
            if self._socket.released.is_set():
                answer.done.set()
                return
            self._socket.answer = answer
            try:
                ticket.begin(until.left(), until.error())
            except Exception as error:  # or the thread would wait for ever
                ticket.fail(unexpected(error))

        self._engine.loop.call(begin)
        answer.done.wait()
        self._socket.answer = None
        record.first_token, record.last_token = answer.first_token, answer.last_token
        record.end = answer.finish
        count(record, call, answer.tokens)
        if answer.error is not None:
            record.status = answer.error.status
            record.failed(answer.error)
        elif answer.finish is None:
            record.left = "the client closed the connection"

    def _say(self, error: EndpointError, record: RequestRecord) -> None:
        record.status = error.status
        record.failed(error)
        self._engine.loop.call(self._socket.send, encode(error.document()).decode())
