"""Memory that was freed is given back to the machine."""

from __future__ import annotations

import subprocess
import sys

from container.reclaim import STEP, Reclaim

# Blocks of a heap, every 500th of which stays in use, so that glibc alone gives nothing back.
LEFT = """
import ctypes
from container.reclaim import Reclaim, own_memory
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
reclaim = Reclaim(own_memory, lambda: libc.malloc_trim(0))
blocks = [libc.malloc(4000) for _ in range(50_000)]
for block in blocks:
    ctypes.memset(ctypes.c_void_p(block), 1, 4000)
for place, block in enumerate(blocks):
    if place % 500:
        libc.free(ctypes.c_void_p(block))
kept = own_memory()
reclaim.look()
print((kept - own_memory()) >> 20)
"""


class Process:
    """One whose memory is what the test says."""

    def __init__(self) -> None:
        self.own = self.free = 0
        self.trims = 0

    def trim(self) -> None:
        self.own -= self.free
        self.free = 0
        self.trims += 1


def test_pages_in_the_middle_of_a_heap_go_back() -> None:
    found = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, check=True)
    assert int(found.stdout) > 150  # MiB, of 190


def test_it_is_asked_only_when_the_process_has_grown() -> None:
    process = Process()
    reclaim = Reclaim(lambda: process.own, process.trim)
    for own, free, trims, left in (
        (STEP, STEP, 0, STEP),
        (STEP + 1, STEP, 1, 1),
        (STEP, 0, 1, STEP),
        (5 * STEP, 0, 2, 5 * STEP),  # in use: it is not asked again
        (5 * STEP + 9, 9, 2, 5 * STEP + 9),
        (2 * STEP, 0, 2, 2 * STEP),  # glibc gave something back itself
        (3 * STEP + 1, 1, 3, 3 * STEP),
    ):
        process.own, process.free = own, free
        reclaim.look()
        assert (process.trims, process.own) == (trims, left)
