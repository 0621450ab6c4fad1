"""Keeps connections to containers open between two streams. The next stream to the same container reuses one.

They are kept only briefly, so that a container that shuts down does not wait for them. A connection on which bytes have
arrived is not reused: its container has ended.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field

from local_sagemaker.gateway.gateway_settings import ContainerAddress

SECONDS = 0.5


@dataclass(slots=True)
class IdleConnections:
    """Idle connections by address. Thread-safe. The owner calls `sweep` regularly."""

    _kept: dict[ContainerAddress, deque[tuple[float, socket.socket]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def give(self, address: ContainerAddress, connection: socket.socket) -> None:
        """Adds a connection whose last reply was complete and that nobody else uses."""
        with self._lock:
            self._kept.setdefault(address, deque()).append((time.monotonic(), connection))

    def take(self, address: ContainerAddress) -> socket.socket | None:
        """Returns a connection that the container has not closed, or None."""
        while True:
            with self._lock:
                kept = self._kept.get(address)
                if not kept:
                    return None
                since, connection = kept.pop()
            if time.monotonic() - since < SECONDS and not _has_news(connection):
                return connection
            connection.close()

    def sweep(self) -> None:
        """Closes connections that have been idle for too long."""
        now = time.monotonic()
        with self._lock:
            for address, kept in list(self._kept.items()):
                while kept and now - kept[0][0] >= SECONDS:
                    kept.popleft()[1].close()
                if not kept:
                    del self._kept[address]


def _has_news(connection: socket.socket) -> bool:
    look = select.poll()
    look.register(connection, select.POLLIN | select.POLLRDHUP)
    return bool(look.poll(0))
