"""Brings the machine's free memory into the same state before each run: `python -m benchmarks.lib.memory BYTES`."""

from __future__ import annotations

import mmap
import subprocess
import sys

# madvise(2), since Linux 5.14; the module has no name for it in Python 3.11.
MADV_POPULATE_WRITE = 23


def make_resident(size: int) -> None:
    """Touches `size` bytes of memory in another process, which then frees them.

    A virtual machine may return free memory to its host (the kernel's free page reporting). The next program that gets
    such pages waits for the host: up to three times the duration of a whole restore, on either side of a pair by chance
    (benchmarks/README.md).

    :raises subprocess.CalledProcessError: there is too little free memory, or the kernel is too old.
    """
    subprocess.run([sys.executable, "-m", "benchmarks.lib.memory", str(size)], check=True)


def touch(size: int) -> None:
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory.madvise(MADV_POPULATE_WRITE)


if __name__ == "__main__":
    touch(int(sys.argv[1]))
