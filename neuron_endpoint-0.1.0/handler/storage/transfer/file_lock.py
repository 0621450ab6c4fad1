"""A file lock that allows one download to a directory at a time on one machine."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL = 0.1  # seconds


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[bool]:
    """Holds the lock of a directory, or of a file, which is created. Yields whether the path still is what was locked.

    If its last holder has renamed or removed it, two processes can hold two locks. So a file of locks stays.

    flock belongs to the open file. So it excludes threads as well as processes, and the kernel releases it when its
    holder ends.

    :param waiting: called every 0.1 s while another process holds the lock. An exception ends the wait.
    :raises OSError: the file cannot be created.
    """
    flags = os.O_DIRECTORY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waiting()
                time.sleep(POLL)
        yield _is(path, descriptor)
    finally:
        os.close(descriptor)


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
