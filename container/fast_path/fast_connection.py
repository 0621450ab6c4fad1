"""One client's connection while an event loop owns it: reads requests and hands others over to threads.

A request is handed over once its head is complete. So a client that sends its head slowly holds no thread.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from gunicorn.workers.gthread import TConn

from container.connection.socket_io import receive, send_now
from container.fast_path.body_arrival import CONTINUE, BodyArrival, without_expectation
from container.fast_path.request_handler import FastPathContext, RequestHandler
from container.fast_path.request_head import HEAD_END, LONGEST_BODY, LONGEST_HEAD, NotEligible, RequestHead, head_of
from container.requests import request_body
from container.requests.body_budget import BodyBytes
from container.requests.http_limits import max_body
from handler.errors import EndpointError, RequestTimedOut

logger = logging.getLogger(__name__)
# Bytes of the longest head. A thread rejects a longer one.
MAX_HEAD = 32 * 1024
READ = 64 * 1024
# Bytes that are read of further requests while one is being answered.
READ_AHEAD = LONGEST_HEAD + LONGEST_BODY


class ConnectionOwner(Protocol):
    """The part of the dispatcher that its connections use."""

    loop: asyncio.AbstractEventLoop
    context: FastPathContext
    stopping: bool
    fast: bool

    @property
    def idle_seconds(self) -> float:
        """Seconds that an idle connection is kept open."""
        ...

    def queue(self, client: FastConnection) -> None:
        """Queues the connection: a whole request has been read."""
        ...

    def hand_over(self, client: FastConnection, received: bytearray) -> None:
        """Gives a request that is not eligible for the fast path to a thread."""
        ...

    def closed(self, client: FastConnection, graceful: bool) -> None:
        """Closes the connection."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class FastConnection:
    """One client's connection. All methods run on the loop.

    :param _received: bytes of the next request that were read before the loop got the connection.
    :ivar idle_since: the loop's time when the connection began to wait for a request.
    :ivar queued: a whole request waits for its turn to begin.
    """

    _dispatcher: ConnectionOwner
    conn: TConn
    _received: bytearray
    _socket: socket.socket = field(init=False)
    _fd: int = field(init=False)
    _head: RequestHead | None = None
    _handler: RequestHandler | None = None
    _timer: asyncio.TimerHandle | None = None
    _reading: bool = False
    _head_arriving: bool = False
    _arrival: BodyArrival | None = None
    _body_bytes: BodyBytes = field(init=False)
    _ended: bool = False
    queued: bool = False
    idle_since: float = field(init=False)

    def __post_init__(self) -> None:
        self._socket = self.conn.sock
        self._fd = self._socket.fileno()
        self._body_bytes = BodyBytes(self._dispatcher.context.service.bodies)
        self.idle_since = self._dispatcher.loop.time()

    @property
    def idle(self) -> bool:
        return self._handler is None and not self.queued and self._head is None and self._arrival is None

    def open(self) -> None:
        self._start_reading()
        self._check_request()

    def _start_reading(self) -> None:
        if not self._reading and not self._ended:
            self._reading = True
            self._dispatcher.loop.add_reader(self._fd, self._readable)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._dispatcher.loop.remove_reader(self._fd)

    def _readable(self) -> None:
        data = receive(self._socket, READ)
        if data is None:
            return
        if not data:
            self._client_closed()
            return
        self._received += data
        if self._arrival is not None:
            self._body_grew(data)
        elif self._handler is None and not self.queued:
            self._check_request()
        elif len(self._received) > READ_AHEAD:
            self._stop_reading()

    def _client_closed(self) -> None:
        self._ended = True
        self._stop_reading()
        if self._handler is not None:
            self._handler.half_close()
        elif self.queued:
            return  # its turn begins the request, then ends it
        elif self._received:
            self._hand_over()
        else:
            self.close()

    def _check_request(self) -> None:
        """Queues the request, hands it over, or waits for more of it."""
        if self._head is None and self._received and HEAD_END not in self._received:
            self._wait_for_head()
            return
        if not self._dispatcher.fast and self._received:
            self._wait_for_body()
            return
        try:
            head = self._head = self._head or (head_of(self._received) if self._received else None)
        except NotEligible:
            self._wait_for_body()
            return
        if head is None or len(self._received) < head.size + head.length:
            if head is not None and head.length > self._max_body:
                self._wait_for_body()
            elif self._dispatcher.stopping and self._received:
                self._hand_over()
            elif not self._received:
                self.idle_since = self._dispatcher.loop.time()
                self._set_timer(self._dispatcher.idle_seconds, self.close)
            elif not self._head_arriving:
                self._head_arriving = True
                self._set_timer(request_body.BODY_SECONDS, self._too_late)
            return
        self._head_arriving = False
        self._cancel_timer()
        self.queued = True
        self._dispatcher.queue(self)

    def _wait_for_head(self) -> None:
        if len(self._received) > MAX_HEAD:
            self.conn.head_too_long = True
            self._hand_over()
        elif not self._head_arriving:
            self._head_arriving = True
            stopping, limit = self._dispatcher.stopping, request_body.BODY_SECONDS
            self._set_timer(self._dispatcher.idle_seconds if stopping else limit, self.close)

    def _wait_for_body(self) -> None:
        """Hands the request over once its body is whole. A thread rejects a body that is too large, before it comes."""
        self._head_arriving = False
        if self._dispatcher.stopping:
            self._hand_over()
            return
        arrival = self._arrival = BodyArrival()
        arrival.feed(self._received)
        if arrival.complete or (arrival.length or 0) > self._max_body:
            self._hand_over()
            return
        if without_expectation(self._received):
            send_now(self._socket, CONTINUE)
        self._set_timer(request_body.BODY_SECONDS, self._too_late)
        self._take(len(self._received))

    def _body_grew(self, data: bytes) -> None:
        assert self._arrival is not None, "a body is arriving"
        self._arrival.feed(data)
        if self._arrival.complete or len(self._received) > self._max_body + MAX_HEAD:
            self._hand_over()
        else:
            self._take(len(data))

    def _take(self, size: int) -> None:
        """Takes bytes from the budget of all bodies, while they wait for more. A thread then takes the whole body's."""
        try:
            self._body_bytes.take(size)
        except EndpointError as error:
            self._refuse(error)

    @property
    def _max_body(self) -> int:
        return max_body(self._dispatcher.context.service.config)

    def _too_late(self) -> None:
        self._refuse(RequestTimedOut(request_body.BODY_SECONDS))

    def _refuse(self, error: EndpointError) -> None:
        """Has a thread answer with an error and close the connection. The rest of the body is discarded."""
        self.conn.refusal = error
        self._received.clear()
        self._hand_over()

    def begin_request(self) -> None:
        """Begins the queued request, or hands it over."""
        self.queued = False
        head, received = self._head, bytes(self._received)
        assert head is not None, "only whole requests are queued"
        end = head.size + head.length
        handler = RequestHandler(self._dispatcher.context, self._socket, head, self._request_ended)
        self._handler, self._head, self._received = handler, None, bytearray(received[end:])
        try:
            handler.begin(received[head.size : end])
        except Exception as error:  # it had no side effects, and a thread reports an EndpointError to the client
            if not isinstance(error, NotEligible | EndpointError):
                logger.exception("the fast path failed; a thread answers the request")
            self._handler, self._received = None, bytearray(received)
            self._hand_over()
            return
        if self._ended and self._handler is handler:
            handler.half_close()

    def _request_ended(self, handler: RequestHandler, keep_alive: bool) -> None:
        self._handler = None
        self._dispatcher.context.deferred_observer.ended(handler.record)
        if not keep_alive or self._ended:
            self.close(graceful=not keep_alive and not self._ended and not handler.handed_over)
        elif self._received:
            self._dispatcher.loop.call_soon(self._next_request)
        else:
            self._next_request()

    def _next_request(self) -> None:
        self._start_reading()
        self._check_request()

    def _set_timer(self, seconds: float, then: Callable[[], object]) -> None:
        self._cancel_timer()
        self._timer = self._dispatcher.loop.call_later(seconds, then)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hurry(self) -> None:
        """Closes an idle connection sooner: the process is ending. A thread reads the rest of a body."""
        if self._arrival is not None:
            self._hand_over()
        elif self.idle:
            self._set_timer(self._dispatcher.idle_seconds, self.close)

    def _hand_over(self) -> None:
        self._cancel_timer()
        self._stop_reading()
        self._arrival = None
        self._body_bytes.release()
        self._dispatcher.hand_over(self, self._received)

    def close(self, graceful: bool = False) -> None:
        self._cancel_timer()
        self._stop_reading()
        self._body_bytes.release()
        self._dispatcher.closed(self, graceful)
