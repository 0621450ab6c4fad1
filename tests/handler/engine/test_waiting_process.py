"""A fork of this process that waits, and becomes what multiprocessing spawns."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from multiprocessing.resource_tracker import _resource_tracker as tracker
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
from setproctitle import setproctitle

from handler.engine.waiting_process import WaitingProcess

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[WaitingProcess]:
    process = forked(monkeypatch)
    yield process
    process.end()


def forked(monkeypatch: pytest.MonkeyPatch) -> WaitingProcess:
    """A process that has a module that no other one has."""
    monkeypatch.setitem(sys.modules, "only_forked", ModuleType("only_forked"))
    return WaitingProcess(dict(os.environ))


def report(path: Path) -> None:
    """Runs in the core: what it is and what it sees."""
    path.write_text(
        f"{os.getpid()} {os.environ.get('SET_LATER')} {'only_forked' in sys.modules} {os.environ.get('GONE')}"
    )
    os.write(2, b"the core's own error\n")
    setproctitle("VLLM::EngineCore")  # as vLLM's core does
    path.with_name("title").write_bytes(Path("/proc/self/cmdline").read_bytes())
    sys.exit(7)


def core(path: Path) -> BaseProcess:
    return SPAWN.Process(target=report, name="EngineCore_DP0", args=(path,))


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def test_it_becomes_the_core_with_the_present_environment_and_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GONE", "1")
    before = children()
    waiting = forked(monkeypatch)
    (pid,) = children() - before - {tracker._pid}  # type: ignore[attr-defined]  # typeshed leaves it out
    monkeypatch.setenv("SET_LATER", "yes")
    monkeypatch.delenv("GONE")
    saved = os.dup(2)
    try:
        with (tmp_path / "errors").open("wb") as errors:
            os.dup2(errors.fileno(), 2)  # as the start does, which keeps the core's last words
            process = core(tmp_path / "seen")
            with waiting.becomes_core():
                process.start()
        process.join()
    finally:
        os.dup2(saved, 2)
        os.close(saved)
    assert (process.pid, process.exitcode) == (pid, 7)
    assert (tmp_path / "seen").read_text() == f"{pid} yes True None"
    assert (tmp_path / "title").read_bytes().startswith(b"VLLM::EngineCore")
    assert (tmp_path / "errors").read_text() == "the core's own error\n"
    waiting.end()  # it is the core's process now, and has been reaped


def test_only_the_first_core_is_the_waiting_process(waiting: WaitingProcess, tmp_path: Path) -> None:
    with waiting.becomes_core():
        first, second = core(tmp_path / "first"), core(tmp_path / "second")
        other = SPAWN.Process(target=report, name="Process-1", args=(tmp_path / "other",))
        for process in (other, first, second):
            process.start()
    for process in (other, first, second):
        process.join()
        assert process.exitcode == 7
    assert [(tmp_path / name).read_text().split()[2] for name in ("other", "first", "second")] == [
        "False",
        "True",
        "False",
    ]


def killed(waiting: WaitingProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    assert waiting._pid is not None
    psutil.Process(waiting._pid).kill()


def other_preload(waiting: WaitingProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KMP_BLOCKTIME", "1")


@pytest.mark.parametrize("change", [killed, other_preload])
def test_a_core_that_it_cannot_become_is_spawned(
    waiting: WaitingProcess, change: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = waiting._pid
    change(waiting, monkeypatch)
    process = core(tmp_path / "seen")
    with waiting.becomes_core():
        process.start()
    process.join()
    assert process.exitcode == 7
    assert process.pid != pid
    assert pid not in children(), "the waiting process was not ended"


def test_a_core_that_inherits_a_descriptor_is_spawned(waiting: WaitingProcess) -> None:
    queue: Queue[int] = SPAWN.Queue()
    process = SPAWN.Process(target=queue.put, name="EngineCore_DP0", args=(5,))
    with waiting.becomes_core():
        process.start()
    assert queue.get(timeout=30) == 5
    process.join()
    assert process.exitcode == 0


def test_the_client_of_a_connection_sees_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has no copy of what was open."""
    ours, theirs = socket.socketpair()
    process = forked(monkeypatch)
    theirs.close()
    ours.settimeout(60)
    assert ours.recv(1) == b""
    process.end()


def test_a_signal_does_what_it_does_to_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        process = forked(monkeypatch)
        assert process._pid is not None
        os.kill(process._pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(process._pid, 0)[1]) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, saved)


SLOW = """
import builtins
builtins.import_begun.set()
assert builtins.import_may_end.wait(60)
"""


def report_slow(path: Path) -> None:
    """Runs in the core: imports a module, which a thread of the other process may just have been importing."""
    import slow_import  # type: ignore[import-not-found]

    path.write_text(slow_import.__name__)


def test_it_is_not_forked_while_a_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_import.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    begun, may_end = threading.Event(), threading.Event()
    monkeypatch.setattr("builtins.import_begun", begun, raising=False)
    monkeypatch.setattr("builtins.import_may_end", may_end, raising=False)
    importing = threading.Thread(target=import_module, args=("slow_import",))
    importing.start()
    assert begun.wait(60)
    monkeypatch.setattr("handler.engine.waiting_process.time.sleep", lambda seconds: may_end.set())
    waiting = forked(monkeypatch)
    may_end.set()
    importing.join()
    process = SPAWN.Process(target=report_slow, name="EngineCore_DP0", args=(tmp_path / "seen",))
    with waiting.becomes_core():
        process.start()
    process.join()
    process.kill()
    assert (tmp_path / "seen").read_text() == "slow_import"
    del sys.modules["slow_import"]


def test_it_ends_with_the_process_that_started_it() -> None:
    script = (
        "from handler.engine.waiting_process import WaitingProcess; import os, signal; w = WaitingProcess({}); "
        "print(w._pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    pid = int(found.stdout)
    deadline = time.monotonic() + 60
    with suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.01)
