"""Which request meets which fault: decided by a seed and by what is asked for, not by the order of threads."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from random import Random
from threading import Lock


class Fault(StrEnum):
    RESET_AT_ONCE = "reset at once"
    RESET_MIDWAY = "reset midway"
    SLOW_DOWN = "503 SlowDown"
    INTERNAL = "500 InternalError"
    SLOW = "slow body"
    STALL = "body that stands still"
    TRICKLE = "body that trickles"
    TRUNCATED = "truncated body"
    SHORT = "shorter content-length"
    FLIPPED = "flipped bit"
    WHOLE = "range ignored"
    GARBAGE = "no HTTP"
    FORBIDDEN = "403 AccessDenied"
    SKEWED = "403 RequestTimeTooSkewed"


# Standing still and trickling cost the test real time, so they are rare.
PASSING = {
    Fault.RESET_AT_ONCE: 4,
    Fault.RESET_MIDWAY: 4,
    Fault.SLOW_DOWN: 6,
    Fault.INTERNAL: 2,
    Fault.SLOW: 3,
    Fault.STALL: 0.3,
    Fault.TRICKLE: 0.3,
    Fault.TRUNCATED: 4,
    Fault.SHORT: 2,
    Fault.FLIPPED: 3,
    Fault.WHOLE: 1,
    Fault.GARBAGE: 1,
    Fault.SKEWED: 1,
}
LASTING = (Fault.SLOW_DOWN, Fault.FLIPPED, Fault.FORBIDDEN, Fault.SKEWED, Fault.RESET_MIDWAY, Fault.TRUNCATED)


class Plan:
    """The faults of one seed. A quarter of the seeds also have a lasting fault, that no retry fixes.

    :ivar seen: how often each fault was met.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        random = Random(seed)
        self._share = random.choice((0.05, 0.2, 0.4, 0.6)) if seed is not None else 0.0
        lasting = seed is not None and random.random() < 0.25
        self.lasting = random.choice(LASTING) if lasting else None
        # Either of some names from the start, or of everything after some requests: "midway".
        self._names = random.choice((0.1, 0.3))
        self._after = random.choice((None, 3, 8))
        self._requests: Counter[str] = Counter()
        self._lock = Lock()
        self.seen: Counter[Fault] = Counter()

    def fault(self, name: str) -> Fault | None:
        """What this request meets; `name` is whatever tells it from others."""
        with self._lock:
            self._requests[name] += 1
            number = self._requests.total()
            fault = self._choose(name, number)
            if fault is not None:
                self.seen[fault] += 1
            return fault

    def _choose(self, name: str, number: int) -> Fault | None:
        if self.lasting is not None:
            struck = Random(f"{self._seed} {name}").random() < self._names if self._after is None else False
            if struck or (self._after is not None and number > self._after):
                return self.lasting
        random = Random(f"{self._seed} {name} {self._requests[name]}")
        if random.random() >= self._share:
            return None
        return random.choices(list(PASSING), list(PASSING.values()))[0]
