"""Threads share two malloc arenas, and freed memory is returned to the machine."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from container.server.malloc import RETRIES, STEP, MemoryTrimmer

THREADS = """
import ctypes, tempfile, threading
from container.server.malloc import limit_arenas
limit_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.fdopen.restype = ctypes.c_void_p
there, done = threading.Barrier(9), threading.Barrier(9)
def allocate():
    there.wait()
    libc.malloc(10_000)
    done.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
there.wait()
done.wait()
with tempfile.TemporaryFile() as file:
    stream = libc.fdopen(file.fileno(), b"w")
    libc.malloc_info(0, ctypes.c_void_p(stream))
    libc.fflush(ctypes.c_void_p(stream))
    file.seek(0)
    print(file.read().count(b"<heap nr="))
"""
# Blocks of a heap, every 500th of which stays in use, so that glibc alone gives nothing back.
LEFT = """
import ctypes
from container.server.malloc import MemoryTrimmer, own_memory
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
trimmer = MemoryTrimmer(own_memory, lambda: libc.malloc_trim(0))
blocks = [libc.malloc(4000) for _ in range(50_000)]
for block in blocks:
    ctypes.memset(ctypes.c_void_p(block), 1, 4000)
for place, block in enumerate(blocks):
    if place % 500:
        libc.free(ctypes.c_void_p(block))
kept = own_memory()
trimmer.check()
print((kept - own_memory()) >> 20)
"""


class Process:
    """One whose memory is what the test says."""

    def __init__(self) -> None:
        self.own = self.free = 0
        self.trims = 0
        self.readable = True
        self.trimmer = MemoryTrimmer(self.read, self.trim)

    def read(self) -> int:
        if not self.readable:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self.own

    def trim(self) -> None:
        self.own -= self.free
        self.free = 0
        self.trims += 1

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.trimmer.check()


def test_pages_in_the_middle_of_a_heap_go_back() -> None:
    found = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, check=True)
    assert int(found.stdout) > 150  # MiB, of 190


def test_a_process_that_has_not_grown_is_left_alone() -> None:
    process = Process()
    process.own = process.free = STEP
    process.look(100)
    assert (process.trims, process.own) == (0, STEP)


def test_what_a_request_still_holds_at_the_first_look_goes_back_when_it_has_freed_it() -> None:
    process = Process()
    process.own = 5 * STEP
    process.look(RETRIES - 1)
    assert process.own == 5 * STEP
    process.free = 4 * STEP
    process.look()
    assert process.own == STEP


def test_growth_that_is_in_use_is_not_asked_about_for_ever() -> None:
    process = Process()
    process.own = 5 * STEP
    process.look(100)
    assert (process.trims, process.own) == (RETRIES, 5 * STEP)
    process.own = 2 * STEP  # glibc gave something back itself
    process.look()
    process.own, process.free = 4 * STEP, 2 * STEP
    process.look(100)
    assert (process.trims, process.own) == (2 * RETRIES + 1, 2 * STEP)


def test_memory_that_cannot_be_read_for_a_while_is_given_back_later(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.own = process.free = 2 * STEP
    process.readable = False
    process.look(3)
    process.readable = True
    process.look()
    assert process.own == 0
    assert [os.strerror(errno.EMFILE) in line for line in caplog.messages] == [True]


@pytest.mark.parametrize(("setting", "expected"), [({}, 2), ({"MALLOC_ARENA_MAX": "3"}, 3)])
def test_eight_threads_have_two_heaps_or_as_many_as_is_set(setting: dict[str, str], expected: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    found = subprocess.run(
        [sys.executable, "-c", THREADS], env={**environment, **setting}, capture_output=True, text=True, check=True
    )
    assert int(found.stdout) == expected
