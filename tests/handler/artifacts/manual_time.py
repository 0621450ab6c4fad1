"""A clock that a test moves by hand."""

from __future__ import annotations

import time
from collections.abc import Callable

from handler.artifacts.lease.lease import Cancel


class ManualTime:
    """`sleep` only moves the clock; `every` is called when the test says so."""

    def __init__(self, now: float = 1000.0) -> None:
        self.seconds = now
        self._epoch = time.time() - now  # the stores of the tests have this machine's clock
        self.slept: list[float] = []
        self._calls: list[Callable[[], None]] = []

    def now(self) -> float:
        return self.seconds

    def date(self) -> float:
        return self._epoch + self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds

    def every(self, seconds: float, call: Callable[[], None]) -> Cancel:
        self._calls.append(call)
        return lambda: self._calls.remove(call) if call in self._calls else None

    def tick(self) -> None:
        """What was begun with `every` is called once."""
        for call in list(self._calls):
            call()

    @property
    def renews(self) -> bool:
        return bool(self._calls)
