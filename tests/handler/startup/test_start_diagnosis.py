"""A failed start of an engine gives the core's own reason, or the signal that ended it."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from handler.errors import SettingError, StartFailed
from handler.startup.start_diagnosis import explained_start_failure

SILENT = "Engine core initialization failed. See root cause above. Failed core proc(s): {}"


def test_a_killed_core_is_reported_with_its_signal() -> None:
    def start() -> None:
        # vLLM's frames hold the processes in a variable of this name.
        proc_manager = SimpleNamespace(processes=[SimpleNamespace(pid=1, exitcode=-9, join=lambda seconds: None)])
        raise RuntimeError(SILENT, proc_manager.processes)

    with pytest.raises(StartFailed, match=r"ended by SIGKILL.*more memory"), explained_start_failure():
        start()


def test_the_last_error_that_the_core_printed_is_the_reason() -> None:
    def start() -> None:
        os.write(1, b"ValueError: head_dim is 33\n")  # as the core does, which inherits the descriptor
        raise RuntimeError(SILENT)

    with pytest.raises(StartFailed, match="ValueError: head_dim is 33"), explained_start_failure():
        start()


def test_an_error_with_its_own_fix_is_unchanged() -> None:
    error = SettingError("dtype", "it is unknown", "Set bfloat16.")
    with pytest.raises(SettingError) as caught, explained_start_failure():
        raise error
    assert caught.value is error
