"""Threads share heaps, so that memory does not grow with their number."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

THREADS = """
import ctypes, tempfile, threading
from container.server.malloc_arenas import limit
limit()
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


@pytest.mark.parametrize(("setting", "expected"), [({}, 2), ({"MALLOC_ARENA_MAX": "3"}, 3)])
def test_eight_threads_have_two_heaps_or_as_many_as_is_set(setting: dict[str, str], expected: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    found = subprocess.run(
        [sys.executable, "-c", THREADS], env={**environment, **setting}, capture_output=True, text=True, check=True
    )
    assert int(found.stdout) == expected
