"""How many requests are in flight, and whether one more may be: the count that drain waits for."""

from __future__ import annotations

import math
import threading
import time
from types import TracebackType

from handler.config.endpoint_config import EndpointConfig
from handler.errors import TooManyRequests

# A refused client is asked to come back when this share of the places should be free.
FREE = 1 / 8
LONGEST_WAIT = 30
# How much a new interval between two replies counts against those before it.
WEIGHT = 0.1


class Admission:
    """A counter with a limit. `with admission:` holds a place from acceptance to the reply's last byte.

    :ivar limit: requests in the engine's slots and in the queue for them; may be set at any time.
    """

    __slots__ = ("_changed", "_count", "_left", "_pace", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._count = 0
        self._pace = 0.0
        self._left: float | None = None
        self._changed = threading.Condition()

    @property
    def count(self) -> int:
        return self._count

    @property
    def total(self) -> int:
        """As `count`, over all processes of the endpoint."""
        return self._count

    @property
    def retry_after(self) -> int:
        """Whole seconds until some places should be free, by the pace at which they were left so far."""
        return min(LONGEST_WAIT, max(1, math.ceil(self._pace * self.limit * FREE)))

    def enter(self) -> None:
        """:raises TooManyRequests: every place is taken."""
        with self._changed:
            if self._count >= self.limit:
                raise TooManyRequests(self.limit, self.retry_after)
            self._count += 1

    def leave(self) -> None:
        now = time.monotonic()
        with self._changed:
            if self._left is not None:
                interval = now - self._left
                self._pace += (WEIGHT if self._pace else 1.0) * (interval - self._pace)
            self._count -= 1
            # Nothing is learnt from the time in which nobody was here.
            self._left = now if self._count else None
            if self._count == 0:
                self._changed.notify_all()

    def wait_empty(self, timeout: float) -> bool:
        """True once nothing is in flight; False when `timeout` seconds have passed before."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout)

    def __enter__(self) -> None:
        self.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


def places(config: EndpointConfig, slots: int) -> int:
    """Requests that may be in flight: those in the engine's slots and those in the queue for them."""
    if config.max_queue is None:
        return config.max_concurrent
    return min(config.max_concurrent, slots + config.max_queue)
