"""A file lock that allows one restore of a directory at a time on one machine."""

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
    """Holds the lock of a file. The file stays afterwards: after a deletion two processes could hold two locks.

    flock belongs to the open file. So it excludes threads as well as processes, and the kernel releases it when its
    holder ends.

    :param waiting: called every 0.1 s while another process holds the lock. An exception ends the wait.
    :raises OSError: the file cannot be created.
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
