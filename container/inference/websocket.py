"""A WebSocket. Its messages are answered one after the other.

wsproto implements the protocol. Everything is bounded: a message by the largest body, all bytes that wait by the budget
of all bodies, the queue of messages by `MAX_QUEUED` and `MAX_AHEAD`, the bytes for a slow reader by the writer's own
limits. The rest of a message must arrive within `ARRIVAL_SECONDS`, as a body must. A connection may be idle: SageMaker
makes an error of a close frame (ModelStreamError). Idle ones are closed only when the process ends or has no
descriptors left.
"""

from __future__ import annotations

import asyncio
import math
import select
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import RemoteProtocolError

from container.http.body_budget import BodyBudget, BodyBytes
from container.http.connection import ARRIVAL_SECONDS
from container.http.exchange import CLIENT_CLOSED, ExchangeConnection
from handler.engine.event_loop import LoopThread
from handler.errors import EndpointError

MAX_QUEUED = 8
# Bytes of messages that wait while one is answered. Then nothing more is read.
MAX_AHEAD = 65536
# How often a connection from which nothing is read is asked whether the client has left.
LEAVING_SECONDS = 0.5
PING_SECONDS = 60.0
MISSED_PONGS = 5


class WebSocket:
    """One connection. All methods run on the loop.

    :param answer: answers a message.
    :param bodies: bounds each message, and the bytes of all that wait to be answered.
    :ivar left: called once, with the reason, when the client has left while a message is being answered.
    :ivar idle_since: monotonic seconds at which the connection began to wait for a message; infinite while one is
        being answered.
    :ivar open: something can be sent.
    """

    def __init__(
        self,
        connection: ExchangeConnection,
        loop: LoopThread,
        bodies: BodyBudget,
        answer: Callable[[bytes], Coroutine[object, object, None]],
    ) -> None:
        self.left: Callable[[str], None] | None = None
        self.idle_since = time.monotonic()
        self.open = True
        self._connection = connection
        self._loop = loop
        self._max_message = bodies.largest
        self._answer = answer
        self._protocol = WSConnection(ConnectionType.SERVER)
        self._bytes = BodyBytes(bodies)
        self._messages: deque[bytes] = deque()
        self._ahead = 0
        self._partial = bytearray()
        self._missed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._arriving: asyncio.TimerHandle | None = None

    def begin(self, environ: Mapping[str, Any]) -> int:
        """Answers the handshake. Returns the status of the answer."""
        try:
            self._protocol.receive_data(request_bytes(environ))
            for event in self._protocol.events():
                if isinstance(event, Request):
                    self._write(self._protocol.send(AcceptConnection()))
        except (RemoteProtocolError, UnicodeError) as error:  # wsproto decodes some headers as ASCII
            rejection = getattr(error, "event_hint", None)
            rejection = rejection if isinstance(rejection, RejectConnection) else RejectConnection(status_code=400)
            self._write(self._protocol.send(rejection))
            self._end()
            return rejection.status_code
        self._timer = self._loop.loop.call_later(PING_SECONDS, self._ping)
        return 101

    def _write(self, data: bytes) -> None:
        self._connection.replies.write(data, bounded=True)

    @property
    def _full(self) -> bool:
        return len(self._messages) >= MAX_QUEUED or self._ahead >= MAX_AHEAD

    def _look_for_end(self) -> None:
        """Ends the connection if the client has closed its side. Its last bytes need not have been read for that."""
        poll = select.poll()
        poll.register(self._connection.descriptor(), select.POLLRDHUP)
        if poll.poll(0):
            self._end()
        elif self.open:
            self._leaving = self._loop.loop.call_later(LEAVING_SECONDS, self._look_for_end)

    def _answer_next(self) -> None:
        if self._messages and self.idle_since < math.inf and self.open:
            self.idle_since = math.inf
            message = self._messages.popleft()
            self._ahead -= len(message)
            self._bytes.give_back(len(message))
            # Not in the context of the message before, whose answer ends here.
            self._loop.task(self._answered(message), context=Context())
            if not self._full and self._leaving is not None:
                self._leaving.cancel()
                self._leaving = None
                self._connection.arrivals.resume()
                self._await_rest()

    def _await_rest(self) -> None:
        """Bounds the time of an unfinished message, whose bytes count as a body's. Not while nothing is read."""
        if self._partial and self._arriving is None and self._leaving is None:
            self._arriving = self._loop.loop.call_later(ARRIVAL_SECONDS, self._too_late)

    def _too_late(self) -> None:
        self.close(CloseReason.POLICY_VIOLATION, f"the rest of a message did not arrive within {ARRIVAL_SECONDS:g} s")

    async def _answered(self, message: bytes) -> None:
        try:
            await self._answer(message)
        finally:
            self.left = None
            self.idle_since = time.monotonic()
            self._answer_next()

    def close_if_idle(self) -> None:
        if self.idle_since < math.inf:
            self.close(CloseReason.GOING_AWAY, "the connection was idle")

    def send(self, document: str) -> None:
        """Sends one text frame."""
        if self.open:
            self._write(self._protocol.send(Message(data=document)))

    def close(self, code: int = CloseReason.NORMAL_CLOSURE, reason: str = "") -> None:
        """Sends a close frame and ends the connection."""
        if self.open:
            self._write(self._protocol.send(CloseConnection(code=code, reason=reason[:100])))
        self._end()

    def data_received(self, data: bytes) -> None:
        if not self.open:
            return
        try:
            self._protocol.receive_data(data)
            for event in self._protocol.events():
                self._handle_event(event)
        except RemoteProtocolError as error:
            reason = getattr(error.event_hint, "code", CloseReason.PROTOCOL_ERROR)
            self.close(reason, "not a valid WebSocket frame at this point")

    def connection_lost(self) -> None:
        self._end()

    def _handle_event(self, event: object) -> None:
        if not self.open:
            return
        if isinstance(event, Ping):
            self._write(self._protocol.send(event.response()))
        elif isinstance(event, Pong):
            self._missed = 0
        elif isinstance(event, CloseConnection):
            self._write(self._protocol.send(event.response()))
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
                if self._arriving is not None:
                    self._arriving.cancel()
                    self._arriving = None
                self._messages.append(bytes(self._partial))
                self._ahead += len(self._partial)
                self._partial.clear()
                self._answer_next()
                if self._full and self._leaving is None:
                    self._connection.arrivals.pause()
                    self._look_for_end()
            else:
                self._await_rest()

    def _ping(self) -> None:
        if not self.open:
            return
        self._missed += self._leaving is None  # while nothing is read, no pong is
        if self._missed > MISSED_PONGS:
            self.close(CloseReason.POLICY_VIOLATION, f"{MISSED_PONGS} pings were not answered")
            return
        self._write(self._protocol.send(Ping(payload=b"")))
        self._timer = self._loop.loop.call_later(PING_SECONDS, self._ping)

    def _end(self) -> None:
        """Ends the running call, and closes the connection. Bytes that were written are still delivered."""
        if not self.open:
            return
        self.open = False
        for timer in (self._timer, self._leaving, self._arriving):
            if timer is not None:
                timer.cancel()
        self._bytes.release()
        if self.left is not None:
            self.left(CLIENT_CLOSED)
        self._connection.close()


def request_bytes(environ: Mapping[str, Any]) -> bytes:
    """The bytes of the handshake for wsproto, rebuilt: they were read already."""
    lines = [f"GET {environ.get('RAW_URI') or '/'} HTTP/1.1"]
    for key, value in environ.items():
        if key.startswith("HTTP_"):
            lines.append(f"{key[5:].replace('_', '-')}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
