"""One client's connection: reads its requests, has them answered in their order, and closes it.

uvicorn's class for llhttp gives no time for a head, no limit for it, no reply to a client that has ended its side, no
error object, and no way to give a connection to the next process (benchmarks/README.md).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol, cast

from container.http.body_budget import BodyBudget, BodyBytes
from container.http.exchange import CLIENT_CLOSED, Exchange, OtherProtocol
from container.http.read_buffer import ReadBuffer
from container.http.reply_buffer import CONTINUE, ReplyBuffer
from container.http.reply_head import closing_reply
from container.http.request_parser import RequestHead, RequestParser
from container.recovery.request_channel import HandedRequest
from container.requests.error_responses import unexpected
from handler.errors import BodyTooLarge, EndpointError, InvalidBody, RequestTimedOut

# Seconds for a head, and for a body.
ARRIVAL_SECONDS = 60.0
# Bytes that are read of further requests while one is being answered.
READ_AHEAD = 16 * 1024
# A connection that this process closes: closing a socket that holds unread bytes makes the kernel send a reset, and
# most clients then never read the reply that they have received. So only the sending side is closed at first. What the
# client still sends is discarded, within these limits in seconds, in seconds of silence and in bytes.
LINGER_SECONDS, LINGER_SILENCE, LINGER_BYTES = 30.0, 2.0, 128 * 1024 * 1024
# How often such a connection is looked at, as a share of `LINGER_SILENCE`.
LINGER_PRECISION = 0.1


class Waiting(Enum):
    """What a connection waits for from its client."""

    NOTHING = auto()
    REQUEST = auto()
    HEAD = auto()
    BODY = auto()
    CLOSE = auto()


class ConnectionOwner(Protocol):
    """What a connection needs of those who keep it.

    :ivar idle_seconds: how long an idle connection is kept.
    """

    loop: asyncio.AbstractEventLoop
    bodies: BodyBudget
    idle_seconds: float

    def add(self, connection: ClientConnection) -> None: ...

    def discard(self, connection: ClientConnection) -> None: ...

    def begin(self, exchange: Exchange) -> None:
        """Has a request answered."""
        ...

    def ended(self, exchange: Exchange) -> None:
        """The reply's last byte was accepted, or the client has left."""
        ...


class ClientConnection(asyncio.Protocol):
    """A connection. All methods run on the loop.

    :param handed: its first request, which an earlier process has begun.
    """

    def __init__(self, owner: ConnectionOwner, handed: HandedRequest | None = None) -> None:
        self._idle_since = owner.loop.time()
        self._owner, self._loop, self._handed = owner, owner.loop, handed
        self._parser = RequestParser(self)
        self.transport: asyncio.Transport
        self._waiting = Waiting.NOTHING
        self._timer: asyncio.TimerHandle | None = None
        self._arriving: Exchange | None = None
        self._active: Exchange | None = None
        self._whole: deque[Exchange] = deque()
        self._ahead = 0
        self._refusal: EndpointError | None = None
        self._ended = False
        self._other: OtherProtocol | None = None
        self._other_bytes: bytearray | None = None
        self.replies: ReplyBuffer
        self.arrivals: ReadBuffer
        self._remaining, self._linger_until, self._heard_at = LINGER_BYTES, math.inf, 0.0

    # The transport's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is not of the class
        self.replies = ReplyBuffer(self.transport, self._loop, self._cut)
        self.arrivals = ReadBuffer(self.transport, self._loop, self._take)
        self._owner.add(self)
        self._feed(b"" if self._handed is None else self._handed.request)

    def data_received(self, data: bytes) -> None:
        self.arrivals.arrived(data)

    def _take(self, data: bytes) -> None:
        if self._other is not None:
            self._other.data_received(data)
        elif self._waiting is Waiting.CLOSE:
            self._discard(len(data))
        elif self._refusal is None:
            self._read_ahead(len(data))
            self._feed(data)

    def eof_received(self) -> bool:
        self._ended = True
        if self._other is not None or self._waiting is Waiting.CLOSE or self.transport.is_closing():
            return False
        if self._active is not None:
            self._client_ended_its_side(self._active)
        elif self._arriving is not None:
            self._refuse(InvalidBody("it ended early"))
        else:
            return False
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._set_timer(Waiting.NOTHING)
        self._owner.discard(self)
        if self._other is not None:
            self._other.connection_lost()
            self._other = None
        if self._active is not None:
            self._active.client_left(CLIENT_CLOSED)
        for exchange in (*self._whole, *(() if self._arriving is None else (self._arriving,))):
            exchange.body_bytes.release()
        self._whole.clear()
        self.arrivals.lost()
        self.replies.lost()
        self._parser.close()

    def pause_writing(self) -> None:
        self.replies.paused()

    def resume_writing(self) -> None:
        self.replies.resumed()

    # Requests.

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed(data)
        except EndpointError as error:
            self._refuse(error)
        except Exception as error:
            self._refuse(unexpected(error))
        else:
            self._wait()

    def _read_ahead(self, size: int) -> None:
        if self._active is None:
            return
        self._ahead += size
        if self._ahead > READ_AHEAD:
            self.arrivals.pause()

    def head_complete(self, head: RequestHead) -> None:
        note = None if self._handed is None else self._handed.note
        exchange = Exchange(self, head, BodyBytes(self._owner.bodies), note)
        self._arriving, self._handed = exchange, None
        self._idle_since = self._loop.time()
        if (head.length or 0) > self._owner.bodies.largest:
            raise BodyTooLarge(self._owner.bodies.largest)
        if self._active is None:
            self._await_body(exchange)

    def _await_body(self, exchange: Exchange) -> None:
        if exchange.head.length != 0:
            self._set_timer(Waiting.BODY, ARRIVAL_SECONDS, self._too_late)
        if exchange.head.expects and not exchange.body_bytes.taken:
            self.transport.write(CONTINUE)

    def body_arrived(self, piece: bytes) -> None:
        assert self._arriving is not None, "a body follows its head"
        self._arriving.body_arrived(piece)
        if self._arriving.body_bytes.taken > self._owner.bodies.largest:
            raise BodyTooLarge(self._owner.bodies.largest)

    def request_complete(self) -> bool:
        exchange, self._arriving = self._arriving, None
        assert exchange is not None, "a request ends after its head"
        self._whole.append(exchange)
        if exchange.head.upgrades:
            exchange.keep_alive = False
            self._other_bytes = bytearray()
        self._begin_next()
        return exchange.head.upgrades

    def other_protocol(self, received: bytes) -> None:
        if self._other is not None:
            self._other.data_received(received)
        elif self._other_bytes is not None:
            self._other_bytes += received

    def _begin_next(self) -> None:
        if self._active is None and self._whole:
            self._set_timer(Waiting.NOTHING)
            self._idle_since = math.inf
            self._active = self._whole.popleft()
            self._owner.begin(self._active)

    def _too_late(self) -> None:
        self._refuse(RequestTimedOut(ARRIVAL_SECONDS))

    def _refuse(self, error: EndpointError) -> None:
        """Ends the connection with an error, after the requests that have arrived before."""
        self._refusal = error
        if self._active is not None or self._whole:
            return
        exchange, self._arriving = self._arriving, None
        if exchange is not None:
            exchange.keep_alive = False
            self._active = exchange
            exchange.fail(error)
            return
        self.transport.write(closing_reply(error))
        self._linger()

    def _client_ended_its_side(self, exchange: Exchange) -> None:
        if exchange.sent or exchange.finished or exchange.head.environ["SERVER_PROTOCOL"] == "HTTP/1.0":
            exchange.client_left(CLIENT_CLOSED)
        else:
            self.replies.probe()

    # Replies.

    def _cut(self, reason: str) -> None:
        if self._active is not None:
            self._active.client_left(reason)
        self.transport.abort()

    def reply_written(self, exchange: Exchange, *, whole: bool) -> None:
        self.replies.when_accepted(lambda: self._reply_ended(exchange, whole and exchange.open))

    def _reply_ended(self, exchange: Exchange, whole: bool) -> None:
        self._active = None
        self._owner.ended(exchange)
        if self.transport.is_closing():
            return
        if not self._whole:
            self._ahead = 0
            if not self._ended:
                self.arrivals.resume()
        if not whole or not exchange.keep_alive:
            self._linger()
        elif self._whole:
            self._begin_next()
        elif self._refusal is not None:
            self._refuse(self._refusal)
        elif self._ended:
            self.transport.close()
        elif self._arriving is not None:
            self._await_body(self._arriving)
        else:
            self._wait()

    def descriptor(self) -> int:
        return int(self.transport.get_extra_info("socket").fileno())

    def close(self) -> None:
        self.replies.when_accepted(self._linger)

    def become(self, protocol: OtherProtocol) -> None:
        """Another protocol gets what arrives from now on, and what has arrived since the handshake."""
        exchange, self._active = self._active, None
        assert exchange is not None, "a handshake is a request"
        self._owner.ended(exchange)
        self._other, received = protocol, bytes(self._other_bytes or b"")
        self._other_bytes = None
        self.arrivals.resume()
        if received:
            protocol.data_received(received)

    # Waiting and closing.

    def _wait(self) -> None:
        """Waits for a request, or for the rest of a head, for some time."""
        if self._active is not None or self._arriving is not None or self._waiting is Waiting.CLOSE:
            return
        if self._parser.begun:
            if self._waiting is not Waiting.HEAD:
                self._set_timer(Waiting.HEAD, min(ARRIVAL_SECONDS, self._owner.idle_seconds), self.transport.close)
        elif self._waiting is not Waiting.REQUEST:
            self._idle_since = self._loop.time()
            self._set_timer(Waiting.REQUEST, self._owner.idle_seconds, self.transport.close)

    def _set_timer(self, waiting: Waiting, seconds: float = 0.0, then: Callable[[], object] = lambda: None) -> None:
        self._waiting = waiting
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if waiting is Waiting.NOTHING else self._loop.call_later(seconds, then)

    @property
    def idle_since(self) -> float:
        """Monotonic seconds since when the client has asked nothing. Infinite while something runs."""
        return self._idle_since if self._other is None else self._other.idle_since

    def close_if_idle(self) -> None:
        """Closes the connection, unless something runs on it."""
        if self._other is not None:
            self._other.close_if_idle()
        elif self._idle_since < math.inf:
            self.transport.close()

    @property
    def converses(self) -> bool:
        """Whether the connection has another protocol."""
        return self._other is not None

    def hurry(self) -> None:
        """Waits less for the client: the process is about to end."""
        if self._waiting in (Waiting.REQUEST, Waiting.HEAD):
            self._waiting = Waiting.NOTHING
            self._wait()
        self._linger_until = min(self._linger_until, self._loop.time() + LINGER_SILENCE)

    def _linger(self) -> None:
        """Closes the sending side, and waits until the client has closed its own."""
        if self._ended or self.transport.is_closing():
            self.transport.close()
            return
        now = self._loop.time()
        self._linger_until, self._heard_at = now + LINGER_SECONDS, now
        self.arrivals.resume()
        self.transport.write_eof()
        self._look_at_sender()

    def _look_at_sender(self) -> None:
        now = self._loop.time()
        if now >= min(self._linger_until, self._heard_at + LINGER_SILENCE):
            self.transport.abort()
        else:
            self._set_timer(Waiting.CLOSE, LINGER_SILENCE * LINGER_PRECISION, self._look_at_sender)

    def _discard(self, size: int) -> None:
        self._heard_at = self._loop.time()
        self._remaining -= size
        if self._remaining <= 0:
            self.transport.abort()
