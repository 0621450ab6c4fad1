"""The progress of a transfer in bytes, counted over several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

# Called with the bytes done and the total bytes.
ByteProgress = Callable[[int, int], None]


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
