"""A WebSocket over gunicorn's socket: frames in and out on the engine's loop, messages answered in the thread.

The protocol itself is wsproto's. Bounded throughout: a message by the largest body, messages that wait by `WAITING`,
what a slow reader has not taken by the writer's own limits.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping
from queue import SimpleQueue
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
from container.streaming.websocket_sink import WebSocketSink

WAITING = 8
READ = 65536
PING_SECONDS = 60.0
MISSED_PONGS = 5


class WebSocket:
    """One connection. All but its making, `messages` and `released` belongs to the loop.

    :ivar messages: what the client has sent; None when there will be no more.
    :ivar released: the loop has let go of the socket.
    """

    def __init__(self, connection: socket.socket, loop: asyncio.AbstractEventLoop, max_message: int) -> None:
        self.messages: SimpleQueue[bytes | None] = SimpleQueue()
        self.released = threading.Event()
        self.answer: WebSocketSink | None = None
        self._socket = connection
        self._loop = loop
        self._max_message = max_message
        self._protocol = WSConnection(ConnectionType.SERVER)
        self._writer = SocketWriter(connection, loop, b"", False, self._gone, self.released.set)
        self._partial = bytearray()
        self._missed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reading = False
        self._ended = False

    def open(self, environ: Mapping[str, Any]) -> None:
        """Answers the handshake and begins to read."""
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
        self.resume()
        self._timer = self._loop.call_later(PING_SECONDS, self._ping)

    def resume(self) -> None:
        """There is room for another message."""
        if self._writer.open and not self._reading and not self._ended and self.messages.qsize() < WAITING:
            self._reading = True
            self._loop.add_reader(self._socket.fileno(), self._readable)

    def send(self, document: str) -> None:
        """One frame of text."""
        if not self._ended:
            self._writer.write(self._protocol.send(Message(data=document)))

    def close(self, code: int = CloseReason.NORMAL_CLOSURE, reason: str = "") -> None:
        if not self._ended:
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
                self._heard(event)
        except RemoteProtocolError as error:
            reason = getattr(error.event_hint, "code", CloseReason.PROTOCOL_ERROR)
            self.close(reason, "not a WebSocket frame that may come here")

    def _heard(self, event: object) -> None:
        if self._ended:
            return
        if isinstance(event, Ping):
            self._writer.write(self._protocol.send(event.response()))
        elif isinstance(event, Pong):
            self._missed = 0
        elif isinstance(event, CloseConnection):
            self._writer.write(self._protocol.send(event.response()))
            self._end()
        elif isinstance(event, TextMessage | BytesMessage):
            self._partial += event.data.encode() if isinstance(event, TextMessage) else event.data
            if len(self._partial) > self._max_message:
                self.close(CloseReason.MESSAGE_TOO_BIG, f"a message may have {self._max_message:,} bytes")
            elif event.message_finished:
                self.messages.put(bytes(self._partial))
                self._partial.clear()
                if self.messages.qsize() >= WAITING and self._reading:
                    self._reading = False
                    self._loop.remove_reader(self._socket.fileno())

    def _ping(self) -> None:
        if self._ended:
            return
        self._missed += 1
        if self._missed > MISSED_PONGS:
            self.close(CloseReason.POLICY_VIOLATION, f"{MISSED_PONGS} pings were not answered")
            return
        self._writer.write(self._protocol.send(Ping(payload=b"")))
        self._timer = self._loop.call_later(PING_SECONDS, self._ping)

    def _gone(self, reason: str) -> None:
        """The client has left: what runs for it is ended."""
        if self._reading:  # the writer lets go of the socket now
            self._reading = False
            self._loop.remove_reader(self._socket.fileno())
        answer = self.answer
        if answer is not None:
            if answer.running is not None:
                answer.running.cancel()
            answer.done.set()
        self.messages.put(None)

    def _end(self) -> None:
        """Nothing more is read; what was written is still taken by the client."""
        if self._ended:
            return
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._gone("the end")
        self._writer.abandon()


def request_bytes(environ: Mapping[str, Any]) -> bytes:
    """The handshake as it came; gunicorn has read it already, and wsproto wants to."""
    lines = [f"GET {environ.get('RAW_URI') or '/'} HTTP/1.1"]
    for key, value in environ.items():
        if key.startswith("HTTP_"):
            lines.append(f"{key[5:].replace('_', '-')}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
