"""The clock that leases and waiting instances use: the machine's own, or a virtual one in a simulation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

# Ends what `Clock.every` started. Returns when a running call has returned.
Cancel = Callable[[], None]


class Clock(Protocol):
    """A source of time. All times are in seconds."""

    def now(self) -> float:
        """Returns monotonic time, for durations on this machine. It is never compared with another machine's."""

    def date(self) -> float:
        """Returns this machine's time since the epoch."""

    def sleep(self, seconds: float) -> None: ...

    def every(self, seconds: float, call: Callable[[], None]) -> Cancel:
        """Calls a function in the background, each time `seconds` after its last call has returned."""


class RealClock:
    """This machine's clocks. Each `every` has a thread of its own."""

    def now(self) -> float:
        return time.monotonic()

    def date(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def every(self, seconds: float, call: Callable[[], None]) -> Cancel:
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(seconds):
                call()

        thread = threading.Thread(target=run, name="every", daemon=True)
        thread.start()

        def cancel() -> None:
            ended.set()
            thread.join()

        return cancel
