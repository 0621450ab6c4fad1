"""Standard output and error that never raise: whoever reads the log may have ended, and the disk may be full."""

from __future__ import annotations

import io
import os
import sys


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
        view = memoryview(data)  # type: ignore[arg-type]  # io gives a buffer
        try:
            return os.write(self._descriptor, view)
        except OSError:
            return len(view)


def never_raise() -> None:
    """Replaces `sys.stdout` and `sys.stderr`, which `print` and the log write to, in this process and its forks."""
    for name in ("stdout", "stderr"):
        output = _Output(getattr(sys, name).fileno())
        stream = io.TextIOWrapper(io.BufferedWriter(output), errors="backslashreplace", line_buffering=True)
        setattr(sys, name, stream)
