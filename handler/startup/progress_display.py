"""Shows the progress of a download or restore: in /ping's body, and as a bar in a terminal or as log lines."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from handler.startup.lifecycle import Lifecycle
from handler.storage.transfer.transfer_progress import (
    ByteProgress,
    ProgressListener,
    Rate,
    TransferProgress,
    progress_bar,
)

logger = logging.getLogger(__name__)
LINE_SECONDS = 10.0  # between two lines of a log


@contextmanager
def shown(
    lifecycle: Lifecycle, description: str, clock: Callable[[], float] = time.monotonic
) -> Iterator[ProgressListener]:
    """Shows the progress of one download or restore. At its end, /ping's body no longer has it.

    :param clock: monotonic seconds.
    """
    lines = ProgressLines(description, clock)
    terminal = sys.stderr.isatty()
    show: ProgressListener | None = None

    with ExitStack() as stack:
        stack.callback(lifecycle.progress, 0, 0, step=description)

        def update(now: TransferProgress) -> None:
            nonlocal show
            waiting = "another process on this machine restores the same files" if now.waiting else ""
            lifecycle.progress(now.done, now.total, now.rate, waiting, description)
            if show is None:  # no bar if everything is already here
                show = stack.enter_context(progress_bar(description)) if terminal else lines.show
            show(now)

        yield update
        if not terminal:
            lines.end()


class ProgressLines:
    """Logs a line every ten seconds, and one at the end with the mean rate."""

    def __init__(self, description: str, clock: Callable[[], float]) -> None:
        self._description, self._clock = description, clock
        self._began = self._logged = clock()
        self._first: int | None = None
        self._last = TransferProgress(0, 0)

    def show(self, now: TransferProgress) -> None:
        if self._first is None and not now.waiting:
            self._first = now.done
        self._last = now
        if self._clock() - self._logged < LINE_SECONDS:
            return
        self._logged = self._clock()
        if now.waiting:
            logger.info("%s: waiting for another process, which does the same", self._description)
        else:
            logger.info(
                "%s: %.2f of %.2f GB, %.0f MB/s", self._description, now.done / 1e9, now.total / 1e9, now.rate / 1e6
            )

    def end(self) -> None:
        received = self._last.done - (self._first or 0)
        seconds = self._clock() - self._began
        if received > 0 and seconds > 0:
            rate = received / seconds / 1e6
            logger.info("%s: %.2f GB in %.1f s, %.0f MB/s", self._description, received / 1e9, seconds, rate)


def of_bytes(listener: ProgressListener) -> ByteProgress:
    """Adapts a listener to the progress in bytes. Adds the rate."""
    rate = Rate()
    return lambda done, total: listener(TransferProgress(done, total, rate.of(done)))
