"""Admits requests up to a limit, and counts those in flight. Draining waits until the count is 0."""

from __future__ import annotations

import math
import threading
import time

from handler.config.endpoint_config import EndpointConfig
from handler.errors import TooManyRequests

# A rejected client is told to try again when this share of the limit should be free.
FREE_SHARE = 1 / 8
MAX_RETRY_AFTER = 30
# The weight of the newest interval between two ended requests, in the moving average.
WEIGHT = 0.1


class Admission:
    """A counter with a limit. Thread-safe. `with admission:` counts a request until the last byte of its reply.

    :ivar limit: the most requests in the engine's slots and in the queue for them. May be changed at any time.
    """

    __slots__ = ("_changed", "_count", "_ended_at", "_interval", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._count = 0
        self._interval = 0.0
        self._ended_at: float | None = None
        self._changed = threading.Condition()

    @property
    def count(self) -> int:
        return self._count

    @property
    def retry_after(self) -> int:
        """Seconds after which a rejected client should try again, from the mean interval between ended requests."""
        return min(MAX_RETRY_AFTER, max(1, math.ceil(self._interval * self.limit * FREE_SHARE)))

    def enter(self) -> None:
        """:raises TooManyRequests: as many requests as the limit are counted already."""
        with self._changed:
            if self._count >= self.limit:
                raise TooManyRequests(self.limit, self.retry_after)
            self._count += 1

    def enter_again(self) -> None:
        """Counts a request that was counted before, whatever the limit."""
        with self._changed:
            self._count += 1

    def leave(self) -> None:
        """Call when the request has ended."""
        now = time.monotonic()
        with self._changed:
            if self._ended_at is not None:
                interval = now - self._ended_at
                self._interval += (WEIGHT if self._interval else 1.0) * (interval - self._interval)
            self._count -= 1
            # An idle time says nothing about how long requests take.
            self._ended_at = now if self._count else None
            if self._count == 0:
                self._changed.notify_all()

    def wait_empty(self, timeout: float) -> bool:
        """Waits until no request is in flight. False if `timeout` seconds pass before."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout)

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, *error: object) -> None:
        self.leave()


def max_in_flight(config: EndpointConfig, slots: int) -> int:
    """How many requests may be in flight: those in the engine's slots and those in the queue for them."""
    if config.max_queue is None:
        return config.max_concurrent
    return min(config.max_concurrent, slots + config.max_queue)
