"""Bounds the bytes that the bodies of all requests have together, while they are read and until their replies end."""

from __future__ import annotations

import threading
from typing import Final

from handler.config.endpoint_config import MIB, EndpointConfig
from handler.errors import BodiesTooLarge, BodyTooLarge
from handler.neuron.hardware import host_memory

# The default: this share of the container's memory, and room for so many bodies of the largest size. Decoded, a body
# takes several times its bytes.
MEMORY_SHARE: Final = 1 / 32
LARGEST_BODIES: Final = 2
# Batch transform's limit for the largest body times the number of concurrent bodies.
TRANSFORM_MB: Final = 100


def max_body(config: EndpointConfig) -> int:
    """The largest body in bytes. Batch transform's own variable raises it to the limit of the job; 0 names none."""
    if not config.batch_transform or config.max_payload_mb is None:
        return config.max_body
    return max(config.max_body, (config.max_payload_mb or TRANSFORM_MB) * MIB)


class BodyBudget:
    """The bytes in use, and their limit. Thread-safe.

    :ivar largest: bytes of the largest body.
    """

    __slots__ = ("_lock", "largest", "limit", "used")

    def __init__(self, limit: int, largest: int) -> None:
        self.limit, self.largest, self.used = limit, largest, 0
        self._lock = threading.Lock()

    @classmethod
    def of(cls, config: EndpointConfig) -> BodyBudget:
        share = int(host_memory.limit() * MEMORY_SHARE)
        return cls(config.body_budget or max(share, LARGEST_BODIES * config.max_body), max_body(config))

    def change(self, size: int) -> None:
        """Takes bytes, or gives them back if `size` is negative.

        :raises BodiesTooLarge: there are not so many left.
        """
        with self._lock:
            if size > 0 and self.used + size > self.limit:
                raise BodiesTooLarge(self.limit)
            self.used += size


class BodyBytes:
    """The bytes that one request has taken from the budget.

    :ivar taken: how many.
    """

    __slots__ = ("_budget", "taken")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget, self.taken = budget, 0

    def take(self, size: int) -> None:
        """Takes more bytes.

        :raises BodyTooLarge: this body alone is larger than the budget.
        :raises BodiesTooLarge: other bodies leave too little of it.
        """
        if self.taken + size > self._budget.limit:
            raise BodyTooLarge(self._budget.limit)
        self._budget.change(size)
        self.taken += size

    def give_back(self, size: int) -> None:
        self._budget.change(-size)
        self.taken -= size

    def release(self) -> None:
        """Gives everything back. May be called again."""
        taken, self.taken = self.taken, 0
        self._budget.change(-taken)
