"""The end of a process that is not our child, heard on an event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


def on_exit(pid: int, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    """Calls `ended` once, on the loop, when the process has ended; at once where it has already. On the loop."""
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
