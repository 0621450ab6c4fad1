"""Ends this process, or calls a function, when another process ends."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def end_with_parent(number: signal.Signals, parent: int | None = None) -> None:
    """Makes the kernel send this process a signal when the thread that forked it ends. Does nothing outside of Linux.

    :param parent: the expected parent. It may have ended already.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), number)


def when_ended(pid: int, then: Callable[[], None]) -> None:
    """Calls ``then`` in a thread when a process has ended. Calls it at once if there is no such process."""

    def wait() -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            then()
            return
        try:
            select.select([descriptor], [], [])
        finally:
            os.close(descriptor)
        then()

    threading.Thread(target=wait, daemon=True, name=f"wait for {pid}").start()
