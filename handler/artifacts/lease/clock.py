"""Time, as the lease and those who wait for it see it: real here, virtual where a fleet is simulated."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

# Ends what was begun with `Clock.every`, and returns when a call that is under way has returned.
Cancel = Callable[[], None]


class Clock(Protocol):
    """Seconds, everywhere."""

    def now(self) -> float:
        """Monotonic time: for durations on this machine, never compared with another's."""
        ...

    def date(self) -> float:
        """Time since the epoch, as far as this machine knows it."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def every(self, seconds: float, call: Callable[[], None]) -> Cancel:
        """Calls in the background, each time `seconds` after the last call has returned."""
        ...


class RealClock:
    """This machine's clocks, and a thread for each `every`."""

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
