"""The connections that the engine's loop has, and the turns in which their requests begin.

gunicorn's threads and Flask answer everything; measured, a small request costs them twice what it costs vLLM's server,
most of it in waking threads that then wait for the interpreter (benchmarks/README.md). So the loop, which writes every
token anyway, reads small plain requests itself and hands a connection with any other request to gunicorn, with the
bytes that it has read. gunicorn gives it back when that request is answered.

Requests begin one in each turn of the loop: between two of them the tokens of all others go out.
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
from container.requests.http_limits import whole_only
from container.service import Service


@dataclass(frozen=True, slots=True)
class ThreadPath:
    """Where a connection goes that leaves the lane. All are called on the loop.

    :param handle: a request is there, some bytes of it already read.
    :param closed: it is to be closed; True: the client is still to read its reply.
    """

    handle: Callable[[TConn], None]
    closed: Callable[[TConn, bool], None]


class Dispatcher:
    """Made when the engine is ready.

    :param keep_alive: seconds that an idle connection is kept.
    :ivar stopping: nothing is answered here any more.
    """

    def __init__(self, ground: FastPathContext, elsewhere: ThreadPath, keep_alive: float) -> None:
        self.ground = ground
        self.loop: asyncio.AbstractEventLoop = ground.loop
        self.stopping = False
        self._keep_alive = keep_alive
        self._elsewhere = elsewhere
        self._clients: set[FastConnection] = set()
        self._turns: deque[FastConnection] = deque()

    @property
    def patience(self) -> float:
        """Seconds that an idle connection is kept."""
        return min(self._keep_alive, STOP_KEEPALIVE_LINGER) if self.stopping else self._keep_alive

    def take(self, conn: TConn, received: bytes = b"") -> None:
        """From any thread: a connection on which a request may come.

        :param received: of that request, already read.
        """
        self.loop.call_soon_threadsafe(self._take, conn, received)

    def _take(self, conn: TConn, received: bytes) -> None:
        client = FastConnection(self, conn, received)
        self._clients.add(client)
        client.open()

    def stop(self) -> None:
        """From any thread: idle connections are closed soon, and what comes on them meanwhile is gunicorn's."""
        self.loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self.stopping = True
        for client in tuple(self._clients):
            client.hurry()

    def close_idle(self, count: int, seconds: float) -> None:
        """From any thread: closes up to `count` connections that have been idle for `seconds`, the longest first."""
        self.loop.call_soon_threadsafe(self._close_idle, count, seconds)

    def _close_idle(self, count: int, seconds: float) -> None:
        latest = self.loop.time() - seconds
        idle = [client for client in self._clients if client.idle and client.idle_since <= latest]
        for client in nsmallest(count, idle, key=attrgetter("idle_since")):
            client.close()

    def queue(self, client: FastConnection) -> None:
        """A client's request is all there."""
        self._turns.append(client)
        if len(self._turns) == 1:
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        client = self._turns[0]
        try:
            client.turn()
        finally:
            self._turns.popleft()
            if self._turns:
                self.loop.call_soon(self._turn)

    def hand_over(self, client: FastConnection, received: bytes) -> None:
        """A client's request is not the lane's."""
        self._clients.discard(client)
        self.ground.service.observer.handed_on.inc()
        conn = client.conn
        conn.init()
        conn.sock.setblocking(True)
        if received:
            conn.parser.unreader.unread(received)
        conn.data_ready = True
        self._elsewhere.handle(conn)

    def closed(self, client: FastConnection, graceful: bool) -> None:
        self._clients.discard(client)
        self._elsewhere.closed(client.conn, graceful)


def fast_path_available(service: Service) -> bool:
    """The loop answers requests of this service: its engine is there, and nothing but it answers.

    The owner's code has its own ways, further models have loops of their own, replies that must be whole have their
    length, and a tokenizer that is not compiled would keep the loop.
    """
    engine = service.engine
    return (
        engine is not None
        and service.custom_code is None
        and service.models is None
        and not whole_only(service.config)
        and engine.prompts.quick
        and not (service.peers is not None and service.peers.leads)
    )
