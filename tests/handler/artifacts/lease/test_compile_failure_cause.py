"""What is remembered of a failed compile, and what is not."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing import get_context

import pytest

from handler.artifacts.lease.compile_errors import SHORT, CompileFailed, CompileKilled
from handler.artifacts.lease.compile_failure_cause import compile_failure
from handler.artifacts.lease.log_redaction import MOST_BYTES, tail
from handler.engine.core_end import core_exits

VLLM = "Engine core initialization failed. See root cause above. Failed core proc(s): "


@pytest.mark.parametrize(
    ("told", "statuses"),
    [("{'EngineCore_DP0': -9}", [-9]), ("{'EngineCore_DP0': 1, 'EngineCore_DP1': -15}", [1, -15]), ("{}", [])],
)
def test_the_statuses_that_vllm_tells(told: str, statuses: list[int]) -> None:
    assert core_exits(RuntimeError(VLLM + told)) == statuses


class _Manager:
    """As vLLM's: it holds the processes of the core."""

    def __init__(self) -> None:
        self.processes = [get_context("spawn").Process(target=time.sleep, args=(600,)) for _ in range(2)]


def test_a_status_that_came_too_late_for_the_message_is_found_all_the_same() -> None:
    def wait_for_engine_startup() -> None:
        proc_manager = _Manager()
        for process in proc_manager.processes:
            process.start()
        os.kill(proc_manager.processes[0].pid or 0, signal.SIGKILL)
        os.kill(proc_manager.processes[1].pid or 0, signal.SIGTERM)
        raise RuntimeError(VLLM + "{}")

    with pytest.raises(RuntimeError) as caught:
        wait_for_engine_startup()
    assert sorted(core_exits(caught.value)) == [-15, -9]


@pytest.mark.parametrize(("status", "signal_name"), [(-9, "SIGKILL"), (0, "SIGTERM")])
def test_a_core_that_was_terminated_is_no_failed_compile(status: int, signal_name: str) -> None:
    """vLLM's core turns SIGTERM into status 0, and prints nothing."""
    failure = compile_failure(RuntimeError(VLLM + f"{{'EngineCore_DP0': {status}}}"), [status], "")
    assert isinstance(failure, CompileKilled)
    assert signal_name in failure.message


def test_the_reason_is_the_cores_own() -> None:
    log = (
        "(EngineCore_DP0 pid=7) Traceback (most recent call last):\n"
        '(EngineCore_DP0 pid=7)   File "a.py", line 1, in compile\n'
        "(EngineCore_DP0 pid=7) RuntimeError: Failed compilation with neuronx-cc: exit status 70\n"
        "Traceback (most recent call last):\n"
        f"RuntimeError: {VLLM}{{}}\n"
    )
    failure = compile_failure(RuntimeError(VLLM + "{'EngineCore_DP0': 1}"), [1], log)
    assert isinstance(failure, CompileFailed)
    assert failure.reason == "RuntimeError: Failed compilation with neuronx-cc: exit status 70"
    assert failure.seconds is None
    assert failure.log == log


@pytest.mark.parametrize(
    "words",
    [
        "[F137] neuronx-cc was forcibly killed",
        "OSError: [Errno 28] No space left on device",
        "OSError: [Errno 122] Disk quota exceeded",
        "OSError: [Errno 98] Address already in use",
        "The server socket cannot listen. code: -98, name: EADDRINUSE, message: address already in use",
        "MemoryError: no room",
        "nrt_init failed with status 1",
        "Neuron Runtime could not be initialized",
        "Logical Neuron Core(s) not available - Requested:32 Available:0",
        "requests.exceptions.ConnectionError: Max retries exceeded with url: /draft",
        "OSError: [Errno 24] Too many open files",
    ],
)
def test_what_this_machine_lacks_is_remembered_for_minutes_and_says_so(words: str) -> None:
    failure = compile_failure(RuntimeError(VLLM + "{}"), [1], f"RuntimeError: {words}\n")
    assert isinstance(failure, CompileFailed)
    assert failure.seconds == SHORT
    assert "for 300 s only" in failure.reason


@pytest.mark.parametrize(
    ("statuses", "log", "crashed"),
    [
        ([1], "RuntimeError: Failed compilation with neuronx-cc: exit status 70\n", True),
        ([1], "subprocess.CalledProcessError: Command 'neuronx-cc' died with <Signals.SIGSEGV: 11>.\n", True),
        ([1], "subprocess.CalledProcessError: Command 'neuronx-cc' died with <Signals.SIGTERM: 15>.\n", True),
        ([1], "RuntimeError: neuronx-cc: exit status 137\n", True),
        ([70], "", True),
        ([-11], "", True),
        ([1], "ERROR: [NCC_EBVF030] too many instructions\nRuntimeError: neuronx-cc: exit status 70\n", False),
        ([1], "ValueError: no kernel for this shape, code 700\n", False),
    ],
)
def test_a_crash_of_the_compiler_is_told_from_its_errors(statuses: list[int], log: str, crashed: bool) -> None:
    failure = compile_failure(RuntimeError(VLLM + "{}"), statuses, log)
    assert isinstance(failure, CompileFailed)
    assert failure.crashed is crashed
    assert statuses != [70] or "status 70 and printed no reason" in failure.reason


def test_a_full_disk_is_said_and_has_its_fix_where_the_last_error_is_that_of_the_compiler() -> None:
    log = "/usr/bin/ld: final link failed: No space left on device\nInductorError: CppCompileError: C++ compile error\n"
    failure = compile_failure(RuntimeError(VLLM + "{'EngineCore_DP0': 1}"), [1], log)
    assert "No space left on device" in failure.message
    assert "ENDPOINT_SCRATCH" in failure.message


def test_a_log_without_blanks_costs_little() -> None:
    began = time.process_time()
    log = "token" * 300 + "\n" + "Error" * 3000
    assert compile_failure(RuntimeError("x"), [1], log).log == log
    assert tail(log, {}) == log[-MOST_BYTES:]
    assert time.process_time() - began < 1
