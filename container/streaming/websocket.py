"""A WebSocket over gunicorn's socket. The engine's loop reads and writes frames; a thread answers the messages.

wsproto implements the protocol. Everything is bounded: a message by the largest body, the queue of messages by
`MAX_QUEUED`, the bytes for a slow reader by the writer's own limits.
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

MAX_QUEUED = 8
READ = 65536
PING_SECONDS = 60.0
MISSED_PONGS = 5


class WebSocket:
    """One connection. Only the constructor, `messages` and `released` may be used outside the loop.

    :ivar messages: the client's messages; None after the last one.
    :ivar released: set when the loop no longer uses the socket.
    :ivar answer: the sink of the message that is being answered.
    """

    def __init__(self, connection: socket.socket, loop: asyncio.AbstractEventLoop, max_message: int) -> None:
        self.messages: SimpleQueue[bytes | None] = SimpleQueue()
        self.released = threading.Event()
        self.answer: WebSocketSink | None = None
        self._socket = connection
        self._loop = loop
        self._max_message = max_message
        self._protocol = WSConnection(ConnectionType.SERVER)
        self._writer = SocketWriter(connection, loop, b"", False, self._client_left, self.released.set)
        self._partial = bytearray()
        self._missed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reading = False
        self._ended = False

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
        self.resume()
        self._timer = self._loop.call_later(PING_SECONDS, self._ping)

    def resume(self) -> None:
        """Reads on, if there is room for another message."""
        if self._writer.open and not self._reading and not self._ended and self.messages.qsize() < MAX_QUEUED:
            self._reading = True
            self._loop.add_reader(self._socket.fileno(), self._readable)

    def send(self, document: str) -> None:
        """Sends one text frame."""
        if not self._ended:
            self._writer.write(self._protocol.send(Message(data=document)))

    def close(self, code: int = CloseReason.NORMAL_CLOSURE, reason: str = "") -> None:
        """Sends a close frame and ends the connection."""
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
                self._handle_event(event)
        except RemoteProtocolError as error:
            reason = getattr(error.event_hint, "code", CloseReason.PROTOCOL_ERROR)
            self.close(reason, "not a valid WebSocket frame at this point")

    def _handle_event(self, event: object) -> None:
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
                self.close(CloseReason.MESSAGE_TOO_BIG, f"a message may have at most {self._max_message:,} bytes")
            elif event.message_finished:
                self.messages.put(bytes(self._partial))
                self._partial.clear()
                if self.messages.qsize() >= MAX_QUEUED and self._reading:
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

    def _client_left(self, reason: str) -> None:
        """Ends the running call: the client has left."""
        if self._reading:  # the writer releases the socket next
            self._reading = False
            self._loop.remove_reader(self._socket.fileno())
        answer = self.answer
        if answer is not None:
            if answer.running is not None:
                answer.running.cancel()
            answer.done.set()
        self.messages.put(None)

    def _end(self) -> None:
        """Stops reading. Bytes that were written are still delivered."""
        if self._ended:
            return
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._client_left("the end")
        self._writer.abandon()


def request_bytes(environ: Mapping[str, Any]) -> bytes:
    """The bytes of the handshake for wsproto, rebuilt: gunicorn has read them already."""
    lines = [f"GET {environ.get('RAW_URI') or '/'} HTTP/1.1"]
    for key, value in environ.items():
        if key.startswith("HTTP_"):
            lines.append(f"{key[5:].replace('_', '-')}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
