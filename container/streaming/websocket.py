"""A WebSocket over gunicorn's socket. The engine's loop reads and writes frames, and has the messages answered.

wsproto implements the protocol. Everything is bounded: a message by the largest body, all bytes that wait by the budget
of all bodies, the queue of messages by `MAX_QUEUED` and `MAX_AHEAD`, the bytes for a slow reader by the writer's own
limits. A connection may be idle: SageMaker makes an error of a close frame (ModelStreamError). Idle ones are closed
only when the process ends or has no descriptors left.
"""

from __future__ import annotations

import asyncio
import math
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    Pong,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import RemoteProtocolError

from container.connection.socket_io import receive
from container.connection.socket_writer import SocketWriter
from container.requests.body_budget import BodyBytes
from container.streaming.websocket_sink import WebSocketSink
from handler.errors import EndpointError

MAX_QUEUED = 8
# Bytes of messages that wait while one is answered. Then nothing more is read.
MAX_AHEAD = 65536
READ = 65536
# How often a connection from which nothing is read is asked whether the client has left.
LEAVING_SECONDS = 0.5
PING_SECONDS = 60.0
MISSED_PONGS = 5


class WebSocket:
    """One connection. Its messages are answered one after the other.

    All methods run on the loop, except the constructor and `close_if_idle`.

    :param answer: begins to answer a message. `answered` ends it.
    :param released: called once, at the end: the loop no longer uses the socket.
    :param waiting_bytes: takes the bytes of what waits to be answered.
    :ivar running: the sink of the message that is being answered.
    :ivar idle_since: monotonic seconds at which the connection began to wait for a message; infinite while one is
        being answered.
    :ivar ended: nothing can be sent any more.
    """

    def __init__(
        self,
        connection: socket.socket,
        loop: asyncio.AbstractEventLoop,
        max_message: int,
        answer: Callable[[bytes], object],
        released: Callable[[], None],
        waiting_bytes: BodyBytes,
    ) -> None:
        self.running: WebSocketSink | None = None
        self.idle_since = time.monotonic()
        self.ended = False
        self._socket = connection
        self._loop = loop
        self._max_message = max_message
        self._answer = answer
        self._protocol = WSConnection(ConnectionType.SERVER)
        self._writer = SocketWriter(connection, loop, b"", False, lambda reason: self._end(), released)
        self._bytes = waiting_bytes
        self._messages: deque[bytes] = deque()
        self._ahead = 0
        self._partial = bytearray()
        self._missed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reading = False
        self._leaving: asyncio.TimerHandle | None = None

    def open(self, environ: Mapping[str, Any]) -> None:
        """Answers the handshake and starts reading."""
        try:
            self._protocol.receive_data(request_bytes(environ))
            for event in self._protocol.events():
                if isinstance(event, Request):
                    self._writer.write(self._protocol.send(AcceptConnection()))
        except RemoteProtocolError as error:
            if error.event_hint is not None:
                self._writer.write(self._protocol.send(error.event_hint))
            self._end()
            return
        self._read_on()
        self._timer = self._loop.call_later(PING_SECONDS, self._ping)

    def _read_on(self) -> None:
        """Reads, if there is room for another message."""
        if not self._reading and not self.ended and not self._full:
            self._reading = True
            self._loop.add_reader(self._socket.fileno(), self._readable)
            if self._leaving is not None:
                self._leaving.cancel()

    @property
    def _full(self) -> bool:
        return len(self._messages) >= MAX_QUEUED or self._ahead >= MAX_AHEAD

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket.fileno())

    def _look_for_end(self) -> None:
        """Ends the connection if the client has closed its side. Its last bytes need not have been read for that."""
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLRDHUP)
        if poll.poll(0):
            self._end()
        elif not self._reading:
            self._leaving = self._loop.call_later(LEAVING_SECONDS, self._look_for_end)

    def _answer_next(self) -> None:
        if self._messages and self.idle_since < math.inf and not self.ended:
            self.idle_since = math.inf
            message = self._messages.popleft()
            self._ahead -= len(message)
            self._bytes.give_back(len(message))
            self._answer(message)
            self._read_on()

    def answered(self) -> None:
        """The message's reply was sent."""
        self.running = None
        self.idle_since = time.monotonic()
        self._answer_next()

    def close_if_idle(self) -> None:
        self._loop.call_soon_threadsafe(self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.idle_since < math.inf:
            self.close(CloseReason.GOING_AWAY, "the connection was idle")

    def send(self, document: str) -> None:
        """Sends one text frame."""
        if not self.ended:
            self._writer.write(self._protocol.send(Message(data=document)))

    def close(self, code: int = CloseReason.NORMAL_CLOSURE, reason: str = "") -> None:
        """Sends a close frame and ends the connection."""
        if not self.ended:
            self._writer.write(self._protocol.send(CloseConnection(code=code, reason=reason[:100])))
        self._end()

    def _readable(self) -> None:
        data = receive(self._socket, READ)
        if data is None:
            return
        if not data:
            self._end()
            return
        try:
            self._protocol.receive_data(data)
            for event in self._protocol.events():
                self._handle_event(event)
        except RemoteProtocolError as error:
            reason = getattr(error.event_hint, "code", CloseReason.PROTOCOL_ERROR)
            self.close(reason, "not a valid WebSocket frame at this point")

    def _handle_event(self, event: object) -> None:
        if self.ended:
            return
        if isinstance(event, Ping):
            self._writer.write(self._protocol.send(event.response()))
        elif isinstance(event, Pong):
            self._missed = 0
        elif isinstance(event, CloseConnection):
            self._writer.write(self._protocol.send(event.response()))
            self._end()
        elif isinstance(event, TextMessage | BytesMessage):
            data = event.data.encode() if isinstance(event, TextMessage) else event.data
            try:
                self._bytes.take(len(data))
            except EndpointError as error:
                self.close(CloseReason.TRY_AGAIN_LATER, error.message)
                return
            self._partial += data
            if len(self._partial) > self._max_message:
                self.close(CloseReason.MESSAGE_TOO_BIG, f"a message may have at most {self._max_message:,} bytes")
            elif event.message_finished:
                self._messages.append(bytes(self._partial))
                self._ahead += len(self._partial)
                self._partial.clear()
                self._answer_next()
                if self._full and self._reading:
                    self._stop_reading()
                    self._look_for_end()

    def _ping(self) -> None:
        if self.ended:
            return
        self._missed += 1
        if self._missed > MISSED_PONGS:
            self.close(CloseReason.POLICY_VIOLATION, f"{MISSED_PONGS} pings were not answered")
            return
        self._writer.write(self._protocol.send(Ping(payload=b"")))
        self._timer = self._loop.call_later(PING_SECONDS, self._ping)

    def _end(self) -> None:
        """Stops reading and ends the running call. Bytes that were written are still delivered."""
        if self.ended:
            return
        self.ended = True
        for timer in (self._timer, self._leaving):
            if timer is not None:
                timer.cancel()
        self._stop_reading()
        self._bytes.release()
        if self.running is not None:
            if self.running.running is not None:
                self.running.running.cancel()
            self.running.done.set()
        self._writer.abandon()


def request_bytes(environ: Mapping[str, Any]) -> bytes:
    """The bytes of the handshake for wsproto, rebuilt: gunicorn has read them already."""
    lines = [f"GET {environ.get('RAW_URI') or '/'} HTTP/1.1"]
    for key, value in environ.items():
        if key.startswith("HTTP_"):
            lines.append(f"{key[5:].replace('_', '-')}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
