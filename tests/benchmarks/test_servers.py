"""Servers as processes: the one that speaks HTTP is found, and all of them are ended."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from benchmarks.lib import process_usage as processes
from benchmarks.lib.contestant import KINDS, REAL, Contestant
from benchmarks.lib.contestant_server import ContestantServer, ServerFailed
from benchmarks.lib.probe import Ping, ask

# A master that opens the port, a worker that answers, and an "engine" that holds a copy of the socket and is
# deaf to SIGTERM.
MASTER = """
import os, signal, socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
if not os.fork():
    engine = os.fork()
    if not engine:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        listener.set_inheritable(True)
        os.execv("/bin/sleep", ["VLLM::EngineCore", "60"])
    answers = 0
    while True:
        connection, _ = listener.accept()
        if connection.recv(4096):
            status = b"200 OK" if answers else b"503 Service Unavailable"
            answers += 1
            connection.sendall(b"HTTP/1.1 " + status + b"\\r\\nContent-Length: 0\\r\\n\\r\\n")
        connection.close()
time.sleep(60)
"""


def scripted(code: str, port: int) -> Contestant:
    return Contestant("ours", "scripted", port, (sys.executable, "-c", code, str(port)))


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_the_worker_is_measured_and_nobody_survives(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.lib.process_usage.GRACE_S", 0.3)
    with ContestantServer(scripted(MASTER, port), tmp_path / "log") as server:
        family = processes.family(server.pid)
        assert len(family) == 3
        assert [process.ppid() for process in processes.http_processes(server.pid, port)] == [server.pid]
        assert 0 < server.start.port_s <= server.start.ping_s < server.start.ready_s
        assert server.usage().rss_bytes < server.usage().tree_rss_bytes
        assert ask(port, "/ping") == 200
    assert not [process for process in family if psutil.pid_exists(process.pid)]
    assert ask(port, "/ping") == 0


def test_a_server_that_ends_says_why(port: int, tmp_path: Path) -> None:
    code = "print('no such setting'); raise SystemExit(3)"
    with (
        pytest.raises(ServerFailed, match=r"ended with code 3(.|\n)*no such setting"),
        ContestantServer(scripted(code, port), tmp_path / "log"),
    ):
        pass


def test_the_probe_counts_from_when_a_question_was_due(port: int) -> None:
    code = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
for n in range(1000):
    connection, _ = listener.accept()
    connection.recv(4096)
    time.sleep(1 if n == 2 else 0)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
    connection.close()
    if n == 15:
        print("enough", flush=True)
"""
    server = subprocess.Popen([sys.executable, "-c", code, str(port)], stdout=subprocess.PIPE)
    assert server.stdout is not None
    try:
        while not ask(port, "/ping"):
            time.sleep(0.02)
        command = [sys.executable, "-m", "benchmarks.lib.probe", str(port), "/ping"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as prober:
            assert server.stdout.readline()
            output, _ = prober.communicate(timeout=5)
    finally:
        server.kill()
        server.wait()
    pings = msgspec.json.decode(output, type=list[Ping])
    assert {ping.status for ping in pings} == {200}
    # One answer took a second. The questions that were due in its first half waited for half a second or more.
    assert sum(ping.seconds >= 0.5 for ping in pings) >= 4


def test_both_sides_get_the_same_engine(tmp_path: Path) -> None:
    ours = KINDS["container"]("ours", 1, tmp_path, tmp_path, REAL)
    theirs = KINDS["vllm"]("theirs", 2, tmp_path, tmp_path, REAL)
    arguments = dict(zip(theirs.command, theirs.command[1:], strict=False))
    assert ours.environment["SM_VLLM_MAX_NUM_SEQS"] == arguments["--max-num-seqs"]
    assert ours.environment["SM_VLLM_MAX_MODEL_LEN"] == arguments["--max-model-len"]
    shared = theirs.environment.items() - {("PYTHONPATH", theirs.environment["PYTHONPATH"])}  # its metadata
    assert shared <= ours.environment.items()
    assert (tmp_path / "ours" / "model").resolve() == tmp_path
