"""The machine's free memory, brought to one state before each run: `python -m benchmarks.lib.memory BYTES`."""

from __future__ import annotations

import mmap
import subprocess
import sys

# madvise(2), since Linux 5.14; the module has no name for it in Python 3.11.
MADV_POPULATE_WRITE = 23


def make_resident(size: int) -> None:
    """Touches `size` bytes of memory, in a process of its own, and gives them back.

    A virtual machine may hand free memory back to its host (the kernel's free page reporting), and the next program
    that happens to be given such pages waits for the host: three times the duration of a whole restore, on one side
    of a pair or the other by chance (benchmarks/README.md).

    :raises subprocess.CalledProcessError: there is not so much free memory, or the kernel is older.
    """
    subprocess.run([sys.executable, "-m", "benchmarks.lib.memory", str(size)], check=True)


def touch(size: int) -> None:
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory.madvise(MADV_POPULATE_WRITE)


if __name__ == "__main__":
    touch(int(sys.argv[1]))
