"""When a transfer that broke off is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Retry:
    """Times in seconds.

    :param attempts: requests for one part before its last failure is final.
    :param base, cap: the wait after the n-th failure is drawn from 0 to base * 2**(n-1), and from no more than cap:
        "full jitter", which spreads a fleet that was slowed down together (AWS Architecture Blog, "Exponential
        Backoff And Jitter").
    :param wait: for each answer of the other side.
    :param stall: a connection that has not filled one buffer in this time is given up, however it trickles.
    """

    attempts: int = 10
    base: float = 0.2
    cap: float = 10.0
    wait: float = 20.0
    stall: float = 30.0

    def delay(self, failures: int, random: Random) -> float:
        """Seconds to wait after so many failures."""
        return random.uniform(0, min(self.cap, self.base * 2 ** (failures - 1)))
