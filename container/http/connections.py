"""The connections of one serving process. One request begins in each turn of the loop, between the tokens of others."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context
from functools import partial
from heapq import nsmallest
from operator import attrgetter

from container.http.body_budget import BodyBudget
from container.http.connection import ClientConnection
from container.http.exchange import Exchange
from container.recovery.request_channel import HandedRequest
from container.requests.error_responses import unexpected
from container.telemetry.request_observer import RequestObserver
from handler.engine.event_loop import LoopThread
from handler.errors import EndpointError

# Seconds that an idle connection is kept, and that it is kept when the process is about to end.
KEEP_SECONDS, LAST_SECONDS = 75.0, 1.0

Answer = Callable[[Exchange], Coroutine[object, object, None]]


class Connections:
    """Keeps the connections and has their requests answered.

    :param answer: answers one request.
    """

    def __init__(self, loop: LoopThread, answer: Answer, observer: RequestObserver, bodies: BodyBudget) -> None:
        self.loop = loop.loop
        self.bodies, self.idle_seconds = bodies, KEEP_SECONDS
        self._tasks, self._answer, self._observer = loop, answer, observer
        self._open: set[ClientConnection] = set()
        self._queue: deque[Exchange] = deque()

    def __len__(self) -> int:
        return len(self._open)

    # Called on the loop.

    def take(self, client: socket.socket, handed: HandedRequest | None = None) -> None:
        """Takes over an accepted connection.

        :param handed: a request of it that an earlier process has read.
        """
        client.setblocking(False)
        self._tasks.task(self.loop.connect_accepted_socket(partial(ClientConnection, self, handed), client))

    def add(self, connection: ClientConnection) -> None:
        self._open.add(connection)

    def discard(self, connection: ClientConnection) -> None:
        self._open.discard(connection)

    def begin(self, exchange: Exchange) -> None:
        self._observer.began(exchange.record, exchange.head.environ)
        self._queue.append(exchange)
        if len(self._queue) == 1:
            # In a context of its own: another client's request, whose reply ends here, has set variables in this one.
            self.loop.call_soon(self._begin_next, context=Context())

    def _begin_next(self) -> None:
        self._tasks.task(self._run(self._queue.popleft()))
        if self._queue:
            self.loop.call_soon(self._begin_next)

    async def _run(self, exchange: Exchange) -> None:
        try:
            await self._answer(exchange)
        except EndpointError as error:
            exchange.fail(error)
        except Exception as error:
            exchange.fail(unexpected(error))
        finally:
            exchange.break_off()  # nothing happens to a reply that has ended

    def ended(self, exchange: Exchange) -> None:
        exchange.body_bytes.release()
        self._observer.ended(exchange.record)

    def close_idle(self, count: int, seconds: float) -> None:
        """Closes up to `count` connections that have been idle for `seconds`, the longest idle first."""
        latest = self.loop.time() - seconds
        idle = [connection for connection in self._open if connection.idle_since <= latest]
        for connection in nsmallest(count, idle, key=attrgetter("idle_since")):
            connection.close_if_idle()

    def stop(self) -> None:
        """Keeps idle connections for a moment only."""
        self.idle_seconds = LAST_SECONDS
        for connection in tuple(self._open):
            connection.hurry()

    def close_conversations(self) -> None:
        """Closes the connections of other protocols on which nothing runs."""
        for connection in tuple(self._open):
            if connection.converses:
                connection.close_if_idle()

    # Called from other threads.

    def wait_closed(self, seconds: float, *, conversations: bool = False) -> bool:
        """Waits until no connection is open. Never call it on the loop.

        :param conversations: looks at those of other protocols only.
        """
        waited: Future[bool] = asyncio.run_coroutine_threadsafe(self._closed(seconds, conversations), self.loop)
        return waited.result()

    async def _closed(self, seconds: float, conversations: bool) -> bool:
        until = self.loop.time() + seconds
        while any(connection.converses or not conversations for connection in self._open):
            if self.loop.time() >= until:
                return False
            await asyncio.sleep(0.02)
        return True
