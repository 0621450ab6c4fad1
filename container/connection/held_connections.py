"""The connections that an event loop keeps after gunicorn's thread has left them: WebSockets.

A WebSocket is idle most of its time. It must not hold a thread meanwhile.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from heapq import nsmallest
from typing import Protocol


class Holder(Protocol):
    """What keeps a connection.

    :ivar idle_since: monotonic seconds since when nothing runs on the connection; infinite while something runs.
    """

    idle_since: float

    def close_if_idle(self) -> None:
        """Closes the connection, unless something runs on it. Callable from any thread."""
        ...


class HeldConnections:
    """The held connections of one process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._held: dict[socket.socket, Holder] = {}
        self._released: dict[socket.socket, Callable[[], None]] = {}

    def hold(self, connection: socket.socket, holder: Holder) -> None:
        with self._lock:
            self._held[connection] = holder

    def when_released(self, connection: socket.socket, released: Callable[[], None]) -> bool:
        """Has `released` called once the connection is no longer held. False: it is not held."""
        with self._lock:
            if connection not in self._held:
                return False
            self._released[connection] = released
            return True

    def release(self, connection: socket.socket) -> None:
        with self._lock:
            self._held.pop(connection, None)
            self._lock.notify_all()
            released = self._released.pop(connection, None)
        if released is not None:
            released()

    def wait_released(self, seconds: float) -> bool:
        """Waits until no connection is held. False if some are after `seconds`."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._held, seconds)

    def close_idle(self, count: int | None = None, seconds: float = 0.0) -> None:
        """Closes connections that have been idle for `seconds`.

        :param count: how many at most, the longest idle first. None: all.
        """
        latest = time.monotonic() - seconds
        with self._lock:
            idle = [holder for holder in self._held.values() if holder.idle_since <= latest]
        for holder in nsmallest(len(idle) if count is None else count, idle, key=lambda holder: holder.idle_since):
            holder.close_if_idle()
