"""Answers a JSON Lines body with JSON Lines, in the same order. Batch transform splits and joins by line."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from flask import Response

from container.connection.gunicorn_connection import GunicornConnection
from container.connection.socket_writer import CLIENT_CLOSED, SocketWriter
from container.recovery.recovery import Recovery
from container.requests.error_responses import error_response, unexpected
from container.requests.http_limits import Deadline
from container.requests.request_record import record_of
from container.streaming.call_lifecycle import begin_call, run_again
from handler.engine.core_queue import GROUP, RequestGroup
from handler.engine.engine import Engine
from handler.errors import EndpointError
from handler.schemas.batch import Batch
from handler.schemas.dispatch import Parse
from handler.schemas.reply import JSON_LINES, RunningCall
from handler.schemas.request_fields import MAX_UNKNOWN
from handler.startup.admission import Admission


class LinesResponse(Response):
    """A WSGI response with one reply on each line.

    It holds one admission, and its lines share the slots of one request.

    :param line_end: ends the last line.
    """

    def __init__(
        self,
        engine: Engine,
        parse: Parse,
        lines: list[bytes],
        admission: Admission,
        deadline: Deadline,
        recovery: Recovery,
        line_end: bytes,
    ) -> None:
        super().__init__(content_type=JSON_LINES)
        self._engine = engine
        self._lines = lines
        self._admission = admission
        self._deadline = deadline
        self._recovery = recovery
        self._line_end = line_end
        self._batch = Batch(engine, parse, engine.slots, deadline.remaining, deadline.error(), self._begin_line)
        self._group = RequestGroup()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        connection = GunicornConnection.of(environ, start_response)
        try:
            replies = self._run(connection)
        except EndpointError as error:
            record_of(environ).failed(error)
            if run_again(self._recovery, error, environ, connection, self._deadline):
                return ()
            return error_response(error)(environ, start_response)
        except Exception as error:  # Flask's error handlers do not run any more
            return error_response(unexpected(error))(environ, start_response)
        finally:
            self._admission.leave()
        if replies is None:
            assert connection is not None, "without a connection nobody notices that the client left"
            record_of(environ).left = CLIENT_CLOSED
            connection.finished("200 OK", [], 0, whole=False)
            return ()
        record = record_of(environ)
        record.ignored = tuple(self._batch.ignored)[:MAX_UNKNOWN]
        self.headers.extend(record.ignored_header)
        self.set_data(b"\n".join(replies) + self._line_end)
        return super().__call__(environ, start_response)

    def _begin_line(self, call: RunningCall) -> None:
        """Runs on the engine's loop, in a context of its own."""
        GROUP.set(self._group)
        begin_call(call, self._deadline)

    def _run(self, connection: GunicornConnection | None) -> list[bytes] | None:
        """The replies; None if the client left before the end."""
        if connection is None:
            return self._batch.run(self._lines)
        loop, released = self._engine.loop, threading.Event()
        writer = SocketWriter(connection.socket, loop.loop, b"", False, self._batch.leave, released.set)
        loop.call(writer.watch)
        try:
            return self._batch.run(self._lines)
        finally:
            loop.call(writer.abandon)
            released.wait()
            connection.take_back()
