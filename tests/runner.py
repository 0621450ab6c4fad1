"""`make test`: runs pytest over several processes, and ends whatever the tests leave running.

Each process takes a file, or a group of files (tests/groups.py), at a time, so its fixtures are made once. There is one
process more than cores, because many tests wait: for a timeout, for a server. This process adopts every orphan of the
tests (prctl(2), PR_SET_CHILD_SUBREAPER), so a server outlives neither its test's fixture nor a SIGTERM to this process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from types import FrameType

import psutil

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
# An engine takes 1.5 GB, and many cores rarely come with as much memory.
MOST_PROCESSES = 8


def main() -> int:
    """Passes its arguments on to pytest. Exit status: pytest's, or 143 after SIGTERM."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    signal.signal(signal.SIGTERM, _exit)
    processes = min(MOST_PROCESSES, len(os.sched_getaffinity(0)) + 1)
    parallel = ["-n", str(processes), "--dist", "loadscope", "--no-loadscope-reorder"]
    # Without cached bytecode, each of some hundred processes would compile all that it imports.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    pytest = subprocess.Popen([sys.executable, "-m", "pytest", *parallel, *sys.argv[1:]], env=environment)
    try:
        return _status_of(pytest.pid)
    except KeyboardInterrupt:  # the terminal has interrupted pytest, too
        return _status_of(pytest.pid)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end_all()


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _status_of(wanted: int) -> int:
    """Waits for a child and for every adopted process that ends before it."""
    while True:
        pid, status = os.wait()
        if pid == wanted:
            return os.waitstatus_to_exitcode(status)


def _end_all() -> None:
    """Kills the descendants until there are none. A killed one's children become this process's own."""
    own = psutil.Process()
    while found := own.children(recursive=True):
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


if __name__ == "__main__":
    sys.exit(main())
