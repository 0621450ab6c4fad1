"""Keeps the memory of the HTTP process small: two malloc arenas for all threads, and `malloc_trim` after growth.

Arenas. glibc gives threads arenas (heaps) of their own, up to eight for each CPU, and keeps freed memory in each. Seen
over 100,000 bodies of the fuzz in the HTTP process: memory in use was 209 MiB throughout. The free memory that glibc
kept beside it grew to 208 MiB, with two arenas to 96 MiB.

Trim. glibc does not return free pages in the middle of a heap to the system. Seen in the HTTP process (mallinfo2): a
prompt of a million characters, rejected after 0.9 s for its tokens, left 184 MiB free that glibc kept. 100,000 bodies
of the fuzz left 20 to 210 MiB beside 211 in use. `malloc_trim` returns such pages: it took 17 ms for 129 MiB, and
0.3 ms where there was nothing to return.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)
# malloc.h
M_ARENA_MAX = -8
MAX_ARENAS = 2
STATM = Path("/proc/self/statm")
INTERVAL = 1.0
# Bytes. Growth of the process by more than this starts trims.
STEP = 16 << 20
# Further trims after the last one that returned something: a request may still hold memory that it will free.
RETRIES = 10


def limit_arenas() -> None:
    """Limits the arenas. Call it before there are threads.

    Does nothing where `MALLOC_ARENA_MAX` is set, or where the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(M_ARENA_MAX, MAX_ARENAS)


class MemoryTrimmer:
    """Has glibc return free memory once the process has grown, until trims return nothing more.

    :param own: reads the bytes of memory that are this process's own.
    :param trim: returns free memory to the system.
    :ivar least: the lowest own memory since the last trim, in bytes.
    """

    def __init__(self, own: Callable[[], int], trim: Callable[[], object]) -> None:
        self._own, self._trim = own, trim
        self._remaining = 0
        self._failed = False
        self.least = own()

    def check(self) -> None:
        """Trims if the process has grown. Does nothing while the memory cannot be read (no file descriptor is left)."""
        try:
            self._check()
        except OSError as error:
            if not self._failed:
                self._failed = True
                logger.warning("Freed memory is not returned to the OS until this ends: %s", error)

    def _check(self) -> None:
        own = self._own()
        if own > self.least + STEP:
            self._remaining = RETRIES
        if not self._remaining:
            self.least = min(self.least, own)
            return
        self._trim()
        self.least = self._own()
        self._remaining = RETRIES if own > self.least + STEP else self._remaining - 1


def own_memory(statm: Path = STATM) -> int:
    """Resident bytes of this process that belong to no file and are not shared (Linux, proc(5): statm)."""
    resident, shared = statm.read_text().split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def start_trimming() -> None:
    """Starts a thread that trims for the life of the process. Does nothing where the C library is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trimmer = MemoryTrimmer(own_memory, lambda: trim(0))
        threading.Thread(target=_run, args=(trimmer,), name="malloc-trim", daemon=True).start()


def _run(trimmer: MemoryTrimmer) -> None:
    while True:
        time.sleep(INTERVAL)
        trimmer.check()
