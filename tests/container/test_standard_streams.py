"""Standard output and error of an endpoint."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A thread writes more than its reader takes, and the process forks meanwhile. The fork writes to another pipe.
FORK = """
import fcntl, os, signal, sys, termios, threading
from container.standard_streams import never_raise
never_raise()
stream, descriptor = getattr(sys, sys.argv[1]), getattr(sys, sys.argv[1]).fileno()
answer = os.dup(descriptor)
read, write = os.pipe()
os.dup2(write, descriptor)
threading.Thread(target=stream.write, args=("x" * 100_000 + "\\n",), daemon=True).start()
while int.from_bytes(fcntl.ioctl(read, termios.FIONREAD, bytes(4)), sys.byteorder) < 65_536:
    pass
if os.fork() == 0:
    signal.alarm(30)
    os.dup2(answer, descriptor)
    stream.write("a line of the fork\\n")
    stream.flush()
else:
    os.wait()
os._exit(0)
"""


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_fork_writes_while_a_thread_of_its_parent_writes(name: str) -> None:
    ended = subprocess.run([sys.executable, "-c", FORK, name], capture_output=True, text=True, timeout=60, check=True)
    assert getattr(ended, name) == "a line of the fork\n"
