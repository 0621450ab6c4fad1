"""Notices that the engine's core has ended while vLLM waits for its first message.

vLLM looks after its core until that says that it is ready. Then it waits up to ten minutes for a message that a core
which was killed in that moment never sends (0.16.0 to 0.29.0, v1/engine/core_client.py, MPClient.__init__). That wait
cannot be ended from outside, but its process can.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import active_children

from handler.engine import core_end

INTERVAL = 0.5
# Seconds in which vLLM itself may say why its core has ended.
GRACE = 5.0


@contextmanager
def core_watched(died: Callable[[str], object]) -> Iterator[None]:
    """Watches the processes that are started within the block.

    :param died: called once, in another thread, with the reason, if one of them has ended and the block goes on.
    """
    before, over = set(active_children()), threading.Event()

    def watch() -> None:
        started = set(before)
        while not over.wait(INTERVAL):
            statuses = [process.exitcode for process in started - before if process.exitcode is not None]
            started.update(active_children())
            if statuses:
                if not over.wait(GRACE):
                    died(f"start engine: its process {core_end.described([int(status) for status in statuses], 0)}")
                return

    watcher = threading.Thread(target=watch, name="core-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
