"""The progress of a restore: for the body of /ping, and as a progress bar in a terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

WINDOW = 5.0  # seconds over which the rate is measured


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """The progress at one moment.

    :param done, total: bytes. `done` includes what an earlier restore wrote, and decreases if a part has to be
        repeated.
    :param rate: bytes received per second, over the last few seconds.
    :param waiting: another process restores the same directory.
    """

    done: int
    total: int
    rate: float = 0.0
    waiting: bool = False


ProgressListener = Callable[[TransferProgress], None]


def ignore_progress(progress: TransferProgress) -> None:
    """A `ProgressListener` that does nothing."""


class Rate:
    """Bytes per second over the last `WINDOW` seconds. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, received: int) -> float:
        """Returns the rate, given the total number of bytes received."""
        now = self._clock()
        self._seen.append((now, received))
        while len(self._seen) > 2 and now - self._seen[1][0] > WINDOW:
            self._seen.popleft()
        then, before = self._seen[0]
        return max(0.0, (received - before) / (now - then)) if now > then else 0.0


@contextmanager
def progress_bar(description: str = "restore") -> Iterator[ProgressListener]:
    """Shows a progress bar on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with Bar(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as shown:
        task = shown.add_task(description, total=None)

        def show(progress: TransferProgress) -> None:
            text = f"{description} (waiting for another process)" if progress.waiting else description
            shown.update(task, completed=progress.done, total=progress.total, description=text)

        yield show
