"""How often, and after which delays, an interrupted transfer is retried."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Retry:
    """The retry policy of a transfer. Times in seconds.

    :param attempts: how many requests are made for one part. The failure of the last one is final.
    :param base, cap: the delay after the n-th failure is drawn from 0 to base * 2**(n-1), at most cap. This is "full
        jitter", which spreads the requests of a fleet that was throttled together (AWS Architecture Blog,
        "Exponential Backoff And Jitter").
    :param wait: the timeout for each reply.
    :param stall: a connection that does not fill one buffer in this time is closed, even if some bytes arrive.
    """

    attempts: int = 10
    base: float = 0.2
    cap: float = 10.0
    wait: float = 20.0
    stall: float = 30.0

    def delay(self, failures: int, random: Random) -> float:
        """Returns the seconds to wait after this number of failures."""
        return random.uniform(0, min(self.cap, self.base * 2 ** (failures - 1)))
