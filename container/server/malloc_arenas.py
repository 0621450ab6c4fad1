"""Few heaps for many threads: what one request's thread has freed is there for the next request's.

glibc gives threads heaps of their own, up to eight for each CPU, and keeps what is freed in each. Seen over 100,000
bodies of the fuzz in the HTTP process: memory in use 209 MiB throughout, and what was kept beside it grew to 208 MiB,
with two heaps to 96.
"""

from __future__ import annotations

import ctypes
import os

# malloc.h
M_ARENA_MAX = -8
MOST = 2


def limit() -> None:
    """Before there are threads. Not where `MALLOC_ARENA_MAX` says otherwise, or the C library is none of glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(M_ARENA_MAX, MOST)
