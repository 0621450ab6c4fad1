"""Standard output and error that never raise: whoever reads the log may have ended, and the disk may be full.

Nor do they have a lock. Python renews, in a forked process, the locks of the streams that it has made itself. That of a
`BufferedWriter` over another stream would stay locked for ever if a thread writes to it at the moment of the fork, and
the engine's core would wait for it at its first line.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Any


class _Output(io.RawIOBase):
    """One descriptor. What it does not take is lost."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: object) -> int:
        view = rest = memoryview(data)  # type: ignore[arg-type]  # io gives a buffer
        with suppress(OSError):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        return len(view)


def never_raise() -> None:
    """Replaces `sys.stdout` and `sys.stderr`, which `print` and the log write to, in this process and its forks."""
    for name in ("stdout", "stderr"):
        output: Any = _Output(getattr(sys, name).fileno())  # io.TextIOWrapper takes a raw stream, as with `python -u`
        setattr(sys, name, io.TextIOWrapper(output, errors="backslashreplace", line_buffering=True))
