"""One client's connection while the engine's loop has it: its bytes, whose request they are, and its time."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Protocol

from gunicorn.workers.gthread import TConn

from container.connection.socket_io import receive
from container.fast_path.request_handler import FastPathContext, RequestHandler
from container.fast_path.request_head import LONGEST_BODY, LONGEST_HEAD, NotEligible, RequestHead, head_of
from handler.errors import EndpointError

logger = logging.getLogger(__name__)
# A request that has begun to come is all here by then, or becomes a thread's, which has patience with slow senders.
PATIENCE = 0.5
READ = 64 * 1024
# Of requests that are sent early, while an earlier one is answered.
AHEAD = LONGEST_HEAD + LONGEST_BODY
LEFT = "the client closed the connection"


class ConnectionOwner(Protocol):
    """The dispatcher, as one of its connections uses it."""

    loop: asyncio.AbstractEventLoop
    ground: FastPathContext
    stopping: bool

    @property
    def patience(self) -> float:
        """Seconds that an idle connection is kept."""
        ...

    def queue(self, client: FastConnection) -> None:
        """A whole request has been read."""
        ...

    def hand_over(self, client: FastConnection, received: bytes) -> None:
        """The request is not eligible for the fast path."""
        ...

    def closed(self, client: FastConnection, graceful: bool) -> None:
        """The connection is to be closed."""
        ...


class FastConnection:
    """All of it happens on the loop.

    :param received: bytes that were read of the next request before the loop got the connection.
    :ivar idle_since: the loop's time when it began to wait for a request.
    """

    __slots__ = (
        "_dispatcher",
        "_ended",
        "_exchange",
        "_fd",
        "_head",
        "_partly",
        "_reading",
        "_received",
        "_socket",
        "_timer",
        "conn",
        "idle_since",
        "queued",
    )

    def __init__(self, dispatcher: ConnectionOwner, conn: TConn, received: bytes) -> None:
        self._dispatcher = dispatcher
        self.conn = conn
        self._socket: socket.socket = conn.sock
        self._fd = conn.sock.fileno()
        self._received = bytearray(received)
        self._head: RequestHead | None = None
        self._exchange: RequestHandler | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reading = False
        self._partly = False
        self._ended = False
        self.queued = False
        self.idle_since = dispatcher.loop.time()

    @property
    def idle(self) -> bool:
        return self._exchange is None and not self.queued and not self._received

    def open(self) -> None:
        self._read_on()
        self._look()

    def _read_on(self) -> None:
        if not self._reading and not self._ended:
            self._reading = True
            self._dispatcher.loop.add_reader(self._fd, self._readable)

    def _read_no_more(self) -> None:
        if self._reading:
            self._reading = False
            self._dispatcher.loop.remove_reader(self._fd)

    def _readable(self) -> None:
        data = receive(self._socket, READ)
        if data is None:
            return
        if not data:
            self._eof()
            return
        self._received += data
        if self._exchange is None and not self.queued:
            self._look()
        elif len(self._received) > AHEAD:
            self._read_no_more()

    def _eof(self) -> None:
        self._ended = True
        self._read_no_more()
        if self._exchange is not None:
            self._exchange.left(LEFT)
        elif self.queued:
            return  # it is begun, and left, in its turn
        elif self._received:
            self._hand_over()
        else:
            self.close()

    def _look(self) -> None:
        """Whose request is it, and is it all there?"""
        try:
            head = self._head = self._head or (head_of(self._received) if self._received else None)
        except NotEligible:
            self._hand_over()
            return
        if head is None or len(self._received) < head.size + head.length:
            if self._dispatcher.stopping and self._received:
                self._hand_over()
            elif not self._received:
                self.idle_since = self._dispatcher.loop.time()
                self._wait(self._dispatcher.patience, self.close)
            elif not self._partly:
                self._partly = True
                self._wait(PATIENCE, self._hand_over)
            return
        self._partly = False
        self._wait(None)
        self.queued = True
        self._dispatcher.queue(self)

    def turn(self) -> None:
        """The request is begun, or is another's after all."""
        self.queued = False
        head, received = self._head, bytes(self._received)
        assert head is not None, "only whole requests wait for a turn"
        end = head.size + head.length
        exchange = RequestHandler(self._dispatcher.ground, self._socket, head, self._exchange_ended)
        self._exchange, self._head, self._received = exchange, None, bytearray(received[end:])
        try:
            exchange.begin(received[head.size : end])
        except (NotEligible, EndpointError):  # the thread path reports the same error to the client
            self._back_to_thread(received)
            return
        except Exception:
            logger.exception("the fast path failed; a thread answers the request")
            self._back_to_thread(received)
            return
        if self._ended and self._exchange is exchange:
            exchange.left(LEFT)

    def _back_to_thread(self, received: bytes) -> None:
        """Hands over a request whose begin has failed and had no side effects."""
        self._exchange, self._received = None, bytearray(received)
        self._hand_over()

    def _exchange_ended(self, exchange: RequestHandler, goes_on: bool) -> None:
        self._exchange = None
        self._dispatcher.ground.notes.ended(exchange.record)
        if not goes_on or self._ended:
            self.close(graceful=not goes_on and not self._ended)
        elif self._received:
            self._dispatcher.loop.call_soon(self._next)
        else:
            self._next()

    def _next(self) -> None:
        self._read_on()
        self._look()

    def _wait(self, seconds: float | None, then: object = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._timer = self._dispatcher.loop.call_later(seconds, then)  # type: ignore[arg-type]

    def hurry(self) -> None:
        """The process is ending: an idle connection is closed sooner."""
        if self.idle:
            self._wait(self._dispatcher.patience, self.close)

    def _hand_over(self) -> None:
        self._wait(None)
        self._read_no_more()
        self._dispatcher.hand_over(self, bytes(self._received))

    def close(self, graceful: bool = False) -> None:
        self._wait(None)
        self._read_no_more()
        self._dispatcher.closed(self, graceful)
