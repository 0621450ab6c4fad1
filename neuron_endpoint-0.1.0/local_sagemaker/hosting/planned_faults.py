"""The faults that are injected into an endpoint."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass


@dataclass(slots=True)
class Chaos:
    """The injected faults. Each lasts until a time of the monotonic clock.

    :ivar delay: the seconds added to each invocation.
    :ivar throttled: the share of invocations that is rejected.
    """

    delay: float = 0.0
    delay_until: float = 0.0
    throttled: float = 0.0
    throttled_until: float = 0.0

    def slow(self, delay: float, seconds: float) -> None:
        self.delay, self.delay_until = delay, time.monotonic() + seconds

    def throttle(self, share: float, seconds: float) -> None:
        self.throttled, self.throttled_until = share, time.monotonic() + seconds

    def delay_now(self) -> float:
        return self.delay if time.monotonic() < self.delay_until else 0.0

    def throttles(self) -> bool:
        return time.monotonic() < self.throttled_until and random.random() < self.throttled
