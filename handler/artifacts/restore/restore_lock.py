"""One restore of a directory at a time, on one machine."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL = 0.1  # seconds


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds the lock of a file that is made for it and stays: deleting it would let two hold "the" lock.

    flock belongs to the open file, so it excludes threads as well as processes, and the kernel drops it when its
    holder dies, however it dies.

    :param waiting: called every 0.1 s while another holds it; what it raises ends the wait.
    :raises OSError: the file cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waiting()
                time.sleep(POLL)
        yield
    finally:
        os.close(descriptor)
