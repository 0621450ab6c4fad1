"""Connections to containers between two streams: the next stream to the same container takes one that is there.

None is kept for long, so that a container that is to end waits for nobody, and none is used on which anything has
come meanwhile: that is how one of a container that has ended tells.
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
    """Thread-safe. Whoever holds it calls `sweep` now and then."""

    _kept: dict[ContainerAddress, deque[tuple[float, socket.socket]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def give(self, address: ContainerAddress, connection: socket.socket) -> None:
        """Its last reply is whole, and nobody else uses it."""
        with self._lock:
            self._kept.setdefault(address, deque()).append((time.monotonic(), connection))

    def take(self, address: ContainerAddress) -> socket.socket | None:
        """One that the container has not closed; None where there is none."""
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
        """Closes those that have been idle for too long."""
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
