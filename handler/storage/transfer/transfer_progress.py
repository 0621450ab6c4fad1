"""The progress of a transfer: for the body of /ping, and as a progress bar in a terminal."""

from __future__ import annotations

import threading
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


# Called with the bytes done and the total bytes.
ByteProgress = Callable[[int, int], None]
ProgressListener = Callable[[TransferProgress], None]


def ignore_progress(progress: TransferProgress) -> None:
    """A `ProgressListener` that does nothing."""


def ignore_bytes(done: int, total: int) -> None:
    """A `ByteProgress` that does nothing."""


class ByteCounter:
    """Counts the bytes of one transfer, and reports them. Thread-safe.

    :param progress: called at the beginning and after each addition.
    """

    def __init__(self, total: int, progress: ByteProgress) -> None:
        self._done, self._total, self._progress, self._lock = 0, total, progress, threading.Lock()
        progress(0, total)

    def add(self, size: int) -> None:
        with self._lock:
            self._done += size
            self._progress(self._done, self._total)


class Rate:
    """Bytes per second over the last `WINDOW` seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, received: int) -> float:
        """Returns the rate, given the total number of bytes received."""
        now = time.monotonic()
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
