"""A WSGI response that serves a WebSocket: each message is a body of /invocations. One is answered after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from queue import Empty
from typing import Any

from flask import Response

from container.connection.gunicorn_connection import GunicornConnection
from container.pipeline.request_pipeline import parse_call
from container.requests.error_responses import error_response, unexpected
from container.requests.http_limits import max_body
from container.requests.request_record import RequestRecord, record_of
from container.service import Service
from container.streaming.call_lifecycle import begin_call, record_outcome
from container.streaming.websocket import WebSocket
from container.streaming.websocket_sink import WebSocketSink
from handler.engine.engine import Engine
from handler.errors import Draining, EndpointError
from handler.schemas.dispatch import Parse
from handler.schemas.json_body import decode
from handler.schemas.reply import encode
from handler.startup.lifecycle import ServingStatus

GOING_AWAY = 1001
# How often an idle connection checks whether the container is shutting down.
CHECK_SECONDS = 0.5


class WebSocketSession(Response):
    """One bidirectional stream. It holds one admission from the handshake to its end.

    Each message is a request of its own in the log, in the metrics and in traces.
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
                self._answer_messages()
            finally:
                loop.call(self._socket.close)
                self._socket.released.wait()
                connection.take_back()
            connection.finished("101 Switching Protocols", [], 0, whole=False)
            return ()
        finally:
            self._service.admission.leave()

    def _answer_messages(self) -> None:
        loop = self._engine.loop
        while True:
            try:
                message = self._socket.messages.get(timeout=CHECK_SECONDS)
            except Empty:
                if self._service.lifecycle.status.state is not ServingStatus.READY:
                    loop.call(self._socket.close, GOING_AWAY, Draining().message)
                    return
                continue
            if message is None:
                return
            loop.call(self._socket.resume)
            record = self._new_record()
            try:
                self._answer(message, record)
            except EndpointError as error:
                self._send_error(error, record)
            except Exception as error:
                self._send_error(unexpected(error), record)
            finally:
                self._service.observer.ended(record)

    def _new_record(self) -> RequestRecord:
        """The record of a message. The headers are those of the handshake."""
        record = RequestRecord(self._environ)
        record.route = record_of(self._environ).route
        record.status = 200
        self._service.observer.began(record, self._environ)
        return record

    def _answer(self, message: bytes, record: RequestRecord) -> None:
        began = time.monotonic()
        self._service.ready_engine()
        call, deadline = parse_call(
            self._service, self._engine, self._parse, decode(message), record, began, stream=True
        )
        self._service.observer.started(record, message)
        sink = WebSocketSink(call.reply, call.stream, self._socket.send)
        running = sink.running = call.request(self._engine, sink)

        def begin() -> None:
            if self._socket.released.is_set():
                sink.done.set()
                return
            self._socket.answer = sink
            begin_call(running, deadline)

        self._engine.loop.call(begin)
        sink.done.wait()
        self._socket.answer = None
        record_outcome(record, call, sink)
        if sink.error is not None:
            record.status = sink.error.status

    def _send_error(self, error: EndpointError, record: RequestRecord) -> None:
        record.status = error.status
        record.failed(error)
        self._engine.loop.call(self._socket.send, encode(error.document()).decode())
