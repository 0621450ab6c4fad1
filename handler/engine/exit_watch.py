"""Watches for the end of a process that is not a child of this one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


def on_exit(pid: int, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    """Calls `ended` once, when the process ends, or at once if it has ended already. Call on the loop."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        ended()
        return

    def readable() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        ended()

    loop.add_reader(descriptor, readable)
