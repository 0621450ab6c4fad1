"""`make test` that is ended from outside, and the tests that `make test-fast` leaves out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
# A test that starts a server in a session of its own, whose parent ends at once. SIGTERM comes before its end.
TEST = """
import subprocess, time

def test_with_a_server():
    subprocess.run("setsid sleep 1000 > {fifo} & echo $! > {fifo}", shell=True, check=True)
    time.sleep(1000)
"""


def test_a_run_that_is_ended_leaves_no_server(tmp_path: Path) -> None:
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    test = tmp_path / "test_with_a_server.py"
    test.write_text(TEST.format(fifo=fifo))
    command = [sys.executable, "-m", "tests.runner", "-n", "1", "-c", os.devnull, "--rootdir", str(tmp_path), str(test)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as run:
        with fifo.open() as started:
            server = psutil.Process(int(started.readline()))
            assert server.is_running()
            run.send_signal(signal.SIGTERM)
            assert run.wait(60) == 128 + signal.SIGTERM
            assert started.read() == "", "the server holds its end"
        assert not server.is_running()


SLOW = ROOT / "tests/slow_tests.txt"


def test_every_slow_test_exists() -> None:
    names = [line for line in SLOW.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    missing = []
    for name in names:
        file, _, function = name.partition("::")
        path = ROOT / file
        if not path.exists() or f"def {function}(" not in path.read_text(encoding="utf-8"):
            missing.append(name)
    assert missing == []
    assert names == sorted(set(names))
