"""A WSGI response that serves a WebSocket: each message is a body of /invocations. One is answered after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import Any

from flask import Response

from container.connection.gunicorn_connection import GunicornConnection
from container.pipeline.request_pipeline import parse_call
from container.pipeline.trial import try_suspect
from container.requests.body_budget import BodyBytes
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


class WebSocketSession(Response):
    """One bidirectional stream. It holds an admission and a thread only while a message is being answered.

    Each message is a request of its own in the log, in the metrics and in traces.

    :param threads: answer the messages.
    """

    def __init__(self, service: Service, engine: Engine, parse: Parse, threads: Executor) -> None:
        super().__init__()
        self._service = service
        self._engine = engine
        self._parse = parse
        self._threads = threads
        self._socket: WebSocket
        self._environ: dict[str, Any] = {}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        connection = GunicornConnection.of(environ, start_response)
        self._environ = environ
        if connection is None:
            return error_response(unexpected(RuntimeError("no socket")))(environ, start_response)
        loop, held = self._engine.loop, self._service.held_connections
        self._socket = WebSocket(
            connection.socket,
            loop.loop,
            max_body(self._service.config),
            lambda message: self._threads.submit(self._answer_message, message),
            partial(held.release, connection.socket),
            BodyBytes(self._service.bodies),
        )
        held.hold(connection.socket, self._socket)
        loop.call(self._socket.open, environ)
        connection.finished("101 Switching Protocols", [], 0, whole=False)
        return ()

    def _answer_message(self, message: bytes) -> None:
        record, taken = self._new_record(), BodyBytes(self._service.bodies)
        try:
            self._service.ready_engine()
            taken.take(len(message))
            with self._service.admission:
                self._answer(message, record)
        except EndpointError as error:
            self._send_error(error, record)
        except Exception as error:
            self._send_error(unexpected(error), record)
        finally:
            taken.release()
            self._engine.loop.call(self._socket.answered)
            if self._service.lifecycle.status.state is not ServingStatus.READY:
                self._engine.loop.call(self._socket.close, GOING_AWAY, Draining().message)
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
        self._service.recovery.keep(record, message)
        call, deadline = parse_call(
            self._service, self._engine, self._parse, decode(message), record, began, stream=True
        )
        self._service.observer.started(record, message)
        try_suspect(self._service.recovery, self._engine, self._parse, (message,), record, deadline)
        sink = WebSocketSink(call.reply, call.stream, self._socket.send)
        running = sink.running = call.request(self._engine, sink)

        def begin() -> None:
            if self._socket.ended:
                sink.done.set()
                return
            self._socket.running = sink
            begin_call(running, deadline)

        self._engine.loop.call(begin)
        sink.done.wait()
        record_outcome(record, call, sink)
        self._service.recovery.failed(sink.error, record, self._environ)
        if sink.error is not None:
            record.status = sink.error.status

    def _send_error(self, error: EndpointError, record: RequestRecord) -> None:
        record.status = error.status
        record.failed(error)
        self._engine.loop.call(self._socket.send, encode(error.document()).decode())
