"""A failed start of an engine gives the core's own reason, or the signal that ended it. What it prints is passed on."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from handler.errors import SettingError, StartFailed
from handler.startup.lifecycle import Lifecycle
from handler.startup.start_diagnosis import MOST_BYTES, explained_start_failure, output_tail

SILENT = "Engine core initialization failed. See root cause above. Failed core proc(s): {}"


def test_a_killed_core_is_reported_with_its_signal() -> None:
    def start() -> None:
        # vLLM's frames hold the processes in a variable of this name.
        proc_manager = SimpleNamespace(processes=[SimpleNamespace(pid=1, exitcode=-9, join=lambda seconds: None)])
        raise RuntimeError(SILENT, proc_manager.processes)

    with pytest.raises(StartFailed, match=r"ended by SIGKILL.*more memory"), explained_start_failure(Lifecycle()):
        start()


def test_the_last_error_that_the_core_printed_is_the_reason() -> None:
    def start() -> None:
        os.write(1, b"ValueError: head_dim is 33\n")  # as the core does, which inherits the descriptor
        raise RuntimeError(SILENT)

    with pytest.raises(StartFailed, match="ValueError: head_dim is 33"), explained_start_failure(Lifecycle()):
        start()


def test_an_error_with_its_own_fix_is_unchanged() -> None:
    error = SettingError("dtype", "it is unknown", "Set bfloat16.")
    with pytest.raises(SettingError) as caught, explained_start_failure(Lifecycle()):
        raise error
    assert caught.value is error


def test_what_a_child_prints_is_kept_and_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    with output_tail() as output:
        subprocess.run([sys.executable, "-c", "import os; os.write(1, b'out'); os.write(2, b'err')"], check=True)
        os.write(2, b"own")
    assert {"out", "err", "own"} == {word for word in ("out", "err", "own") if word in output.text()}
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("out", "errown")
    os.write(1, b"later")
    assert capfd.readouterr().out == "later"
    assert "later" not in output.text()


def test_a_child_that_lives_on_goes_on_to_be_heard(capfd: pytest.CaptureFixture[str]) -> None:
    with output_tail() as output:
        child = subprocess.Popen(
            [sys.executable, "-c", "input(); print('alive')"], stdin=subprocess.PIPE, stdout=None, text=True
        )
    child.communicate("go\n", timeout=30)
    assert output.text() == "alive\n"
    assert capfd.readouterr().out == "alive\n"


def test_only_the_end_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    with output_tail() as output:
        os.write(1, b"first")
        for _ in range(20):
            os.write(1, b"x" * 65536)
        os.write(1, b"last")
    assert len(output.text()) <= MOST_BYTES + 65536
    assert output.text().endswith("last")
    assert "first" not in output.text()
    capfd.readouterr()
