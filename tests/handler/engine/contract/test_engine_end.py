"""How engines end: each test starts one, whatever vLLM is installed."""

from __future__ import annotations

import os
import signal
from typing import Any

import psutil
import pytest

from handler.errors import EngineFailed
from tests.handler.engine.contract.engine_starts import StartedEngine
from tests.handler.waiting import WITHIN, eventually

pytestmark = pytest.mark.engine

LONG: dict[str, Any] = {"max_tokens": 400, "ignore_eos": True, "stream": True}


def alive(pids: tuple[int, ...]) -> list[int]:
    """Those that have not ended. A process whose status nobody has taken has ended."""
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def test_a_killed_core_ends_its_requests_and_no_process_stays() -> None:
    started = StartedEngine()
    engine = started.engine
    try:
        pids = engine.pids
        assert alive(pids) == list(pids) != []
        running = [started.begin(started.prompt("What does /ping mean?"), **LONG)[1] for _ in range(2)]
        assert all(sink.begun.wait(WITHIN) for sink in running)
        os.kill(pids[0], signal.SIGKILL)
        eventually(engine.dead)
        engine.fail_requests(EngineFailed("its process ended"))  # as the watchdog does
        assert all(sink.done.wait(WITHIN) for sink in running)
        assert {type(sink.error) for sink in running} == {EngineFailed}
        eventually(lambda: "SIGKILL" in (engine.problem() or ""))
        assert engine.was_killed()
        later = started.answer([1, 2, 3])
        assert isinstance(later.error, EngineFailed)
    finally:
        engine.stop()
    eventually(lambda: not alive(pids))


@pytest.mark.parametrize("public", [False, True])
def test_the_error_of_a_request_that_the_core_had_says_so(public: bool) -> None:
    """Else no body is suspected, and one body ends each engine after the other."""
    started = StartedEngine(public=public)
    try:
        running = [started.begin(started.prompt("What does /ping mean?"), **LONG)[1] for _ in range(2)]
        assert all(sink.begun.wait(WITHIN) for sink in running)
        os.kill(started.engine.pids[0], signal.SIGKILL)
        assert all(sink.done.wait(WITHIN) for sink in running)
        assert [isinstance(sink.error, EngineFailed) and sink.error.in_core for sink in running] == [True, True]
    finally:
        started.engine.stop()


def test_shutting_down_leaves_no_process() -> None:
    started = StartedEngine()
    pids = started.engine.pids
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    assert set(pids) <= before
    started.engine.stop()
    eventually(lambda: not alive(pids))
    eventually(lambda: not started.loop.tasks())


@pytest.mark.parametrize("loop_ended", [False, True])
def test_the_sockets_to_the_core_are_closed_whoever_sees_its_end_first(loop_ended: bool) -> None:
    """vLLM's thread may have seen it, and be late. An open socket blocks the end of its context, and with it a test."""
    started = StartedEngine()
    adapter: Any = started.engine._adapter
    core: Any = getattr(adapter.client, "engine_core", None)
    try:
        if not hasattr(core, "_finalizer"):
            pytest.skip("the engine V0 has no such sockets")
        sockets = [core.resources.input_socket, core.resources.output_socket]
        assert not any(socket.closed for socket in sockets)
        core._finalizer.detach()
    finally:
        if loop_ended:
            started.loop.stop()
        started.engine.stop()
    eventually(lambda: all(socket.closed for socket in sockets))
