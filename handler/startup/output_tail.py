"""What this process and those that it starts print, passed on as it comes, with its end kept.

The compiler runs in the engine's core, a process that inherits standard output and error: its account of a failure is
there and nowhere else. While an engine is being started to compile, both lead through a pipe. The core keeps them for
as long as it lives, so the thread that passes them on does as well.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

MOST_BYTES = 256 * 1024
STREAMS = (1, 2)
# How long the last words of a process that ended are waited for, in seconds.
LAST_WORDS = 1.0


class OutputTail:
    """The end of what was printed. `text` may be read at any time."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def text(self) -> str:
        """At most MOST_BYTES, and a chunk more. Waits a moment for what is still under way."""
        for thread in self._threads:
            thread.join(LAST_WORDS / len(self._threads))
        with self._lock:
            return b"".join(self._chunks).decode(errors="replace")

    def pass_on(self, source: int, target: int) -> None:
        """Starts to copy one descriptor to another, until every writer has closed it."""
        thread = threading.Thread(target=self._copy, args=(source, target), name="output", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _copy(self, source: int, target: int) -> None:
        while chunk := os.read(source, 65536):
            with self._lock:
                self._chunks.append(chunk)
                self._size += len(chunk)
                while self._size - len(self._chunks[0]) > MOST_BYTES:
                    self._size -= len(self._chunks.popleft())
            with suppress(OSError):  # nobody reads it; the processes that print must not be stopped by that
                _write(target, chunk)
        os.close(source)
        os.close(target)


@contextmanager
def output_tail() -> Iterator[OutputTail]:
    """Within it, standard output and error of this process and of those it starts are kept."""
    tail = OutputTail()
    saved: list[tuple[int, int]] = []
    _flush()
    try:
        for stream in STREAMS:
            original, (source, sink) = os.dup(stream), os.pipe()
            saved.append((stream, original))
            os.dup2(sink, stream)
            os.close(sink)
            tail.pass_on(source, os.dup(original))
        yield tail
    finally:
        _flush()
        for stream, original in saved:
            os.dup2(original, stream)
            os.close(original)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _write(target: int, chunk: bytes) -> None:
    left = memoryview(chunk)
    while left:
        left = left[os.write(target, left) :]
