"""How far something long is, where people look: in /ping's body, and as a bar in a terminal or as lines of a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from handler.artifacts.restore.transfer_progress import ProgressListener, Rate, TransferProgress, bar
from handler.startup.lifecycle import Lifecycle

logger = logging.getLogger(__name__)
LINE_SECONDS = 10.0  # between two lines of a log


@contextmanager
def shown(
    lifecycle: Lifecycle, description: str, clock: Callable[[], float] = time.monotonic
) -> Iterator[ProgressListener]:
    """Listens to one fetch or restore. At its end /ping's body says no more of it.

    :param clock: monotonic seconds.
    """
    lines = ProgressLines(description, clock)
    terminal = sys.stderr.isatty()
    show: ProgressListener | None = None

    with ExitStack() as stack:
        stack.callback(lifecycle.progress, 0, 0)

        def tell(now: TransferProgress) -> None:
            nonlocal show
            waiting = "another process on this machine restores the same" if now.waiting else ""
            lifecycle.progress(now.done, now.total, now.rate, waiting)
            if show is None:  # a bar for what turns out to be here already would be a line about nothing
                show = stack.enter_context(bar(description)) if terminal else lines.show
            show(now)

        yield tell
        if not terminal:
            lines.end()


class ProgressLines:
    """A line every ten seconds, and one at the end that tells the mean rate."""

    def __init__(self, description: str, clock: Callable[[], float]) -> None:
        self._description, self._clock = description, clock
        self._began = self._told = clock()
        self._first: int | None = None
        self._last = TransferProgress(0, 0)

    def show(self, now: TransferProgress) -> None:
        if self._first is None and not now.waiting:
            self._first = now.done
        self._last = now
        if self._clock() - self._told < LINE_SECONDS:
            return
        self._told = self._clock()
        if now.waiting:
            logger.info("%s: another process does it", self._description)
        else:
            logger.info(
                "%s: %.2f of %.2f GB, %.0f MB/s", self._description, now.done / 1e9, now.total / 1e9, now.rate / 1e6
            )

    def end(self) -> None:
        came = self._last.done - (self._first or 0)
        seconds = self._clock() - self._began
        if came > 0 and seconds > 0:
            rate = came / seconds / 1e6
            logger.info("%s: %.2f GB in %.1f s, %.0f MB/s", self._description, came / 1e9, seconds, rate)


def of_bytes(listener: ProgressListener) -> Callable[[int, int], None]:
    """For those who tell bytes done and in all: adds the rate."""
    rate = Rate()
    return lambda done, total: listener(TransferProgress(done, total, rate.of(done)))
