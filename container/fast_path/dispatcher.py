"""The dispatcher of the fast path: holds the connections of the engine's loop and begins their requests one by one.

gunicorn's threads and Flask can answer every request. Measured, a small request costs them twice what it costs vLLM's
server. Most of that is the time of waking threads, which then wait for the interpreter (benchmarks/README.md). The
engine's loop writes every token anyway, so it also reads small plain requests itself. It hands a connection with any
other request to gunicorn, with the bytes that it has read. gunicorn returns the connection after the reply.

One request begins in each iteration of the loop. The tokens of all other requests are sent between two of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import nsmallest
from operator import attrgetter

from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, TConn

from container.fast_path.fast_connection import FastConnection
from container.fast_path.request_handler import FastPathContext
from container.requests.http_limits import requires_content_length
from container.service import Service


@dataclass(frozen=True, slots=True)
class ThreadPath:
    """gunicorn's side of a connection that leaves the fast path. Both functions are called on the loop.

    :param handle: answers a request in a thread. Some of its bytes have been read already.
    :param closed: closes the connection. True: the client has yet to read its reply.
    """

    handle: Callable[[TConn], None]
    closed: Callable[[TConn, bool], None]


class Dispatcher:
    """Dispatches requests on an event loop: the engine's, if `fast`. It is made when the engine is ready.

    :param keep_alive: seconds that an idle connection is kept open.
    :param fast: small plain requests are answered here. Otherwise threads answer every request.
    :ivar stopping: the fast path answers no new requests.
    """

    def __init__(self, context: FastPathContext, thread_path: ThreadPath, keep_alive: float, *, fast: bool) -> None:
        self.context = context
        self.fast = fast
        self.loop: asyncio.AbstractEventLoop = context.loop
        self.stopping = False
        self._keep_alive = keep_alive
        self._thread_path = thread_path
        self._clients: set[FastConnection] = set()
        self._queue: deque[FastConnection] = deque()

    @property
    def idle_seconds(self) -> float:
        """Seconds that an idle connection is kept open."""
        return min(self._keep_alive, STOP_KEEPALIVE_LINGER) if self.stopping else self._keep_alive

    def take(self, conn: TConn, received: bytes = b"") -> None:
        """Takes over a connection on which a request may come. Callable from any thread.

        :param received: bytes of that request that have been read already.
        """
        self.loop.call_soon_threadsafe(self._take, conn, received)

    def _take(self, conn: TConn, received: bytes) -> None:
        client = FastConnection(self, conn, bytearray(received))
        self._clients.add(client)
        client.open()

    def stop(self) -> None:
        """Closes idle connections soon. gunicorn answers requests that come until then. Callable from any thread."""
        self.loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self.stopping = True
        for client in tuple(self._clients):
            client.hurry()

    def close_idle(self, count: int, seconds: float) -> None:
        """Closes up to `count` connections that have been idle for `seconds`, the longest idle first.

        Callable from any thread.
        """
        self.loop.call_soon_threadsafe(self._close_idle, count, seconds)

    def _close_idle(self, count: int, seconds: float) -> None:
        latest = self.loop.time() - seconds
        idle = [client for client in self._clients if client.idle and client.idle_since <= latest]
        for client in nsmallest(count, idle, key=attrgetter("idle_since")):
            client.close()

    def queue(self, client: FastConnection) -> None:
        """Queues a client whose request has been read completely."""
        self._queue.append(client)
        if len(self._queue) == 1:
            self.loop.call_soon(self._begin_next)

    def _begin_next(self) -> None:
        client = self._queue[0]
        try:
            client.begin_request()
        finally:
            self._queue.popleft()
            if self._queue:
                self.loop.call_soon(self._begin_next)

    def hand_over(self, client: FastConnection, received: bytearray) -> None:
        """Gives a client's connection, with a request that is not for the fast path, to a thread."""
        self._clients.discard(client)
        if self.fast:
            self.context.service.observer.handed_over.inc()
        conn = client.conn
        conn.init()
        conn.sock.setblocking(True)
        conn.received = received  # for `ReceivedUnreader`
        conn.data_ready = True
        self._thread_path.handle(conn)

    def closed(self, client: FastConnection, graceful: bool) -> None:
        """Gives a client's connection to gunicorn, which closes it."""
        self._clients.discard(client)
        self._thread_path.closed(client.conn, graceful)


def fast_path_available(service: Service) -> bool:
    """Whether the engine's loop may answer requests of this service. It needs an engine.

    It is off with custom code, which has its own routes; with several models, each of which has its own loop; where
    every reply needs a Content-Length; and with a tokenizer that is not compiled, which would block the loop.
    """
    engine = service.engine
    return (
        engine is not None
        and service.custom_code is None
        and service.models is None
        and not requires_content_length(service.config)
        and engine.prompts.compiled
    )
