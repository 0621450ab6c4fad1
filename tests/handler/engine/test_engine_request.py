"""The real `Engine` and its requests, over a scripted vLLM."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from handler.engine.engine import Engine
from handler.engine.engine_request import EngineRequest
from handler.engine.event_loop import LoopThread
from handler.engine.generation.generation import Generation, Sampling
from handler.engine.generation.request_limits import RequestLimits
from handler.errors import DeadlineExceeded, EndpointError, EngineFailed, GenerationFailed, InvalidField
from handler.neuron.hardware import host_memory
from tests.handler.engine.scripted_vllm import CONTEXT, ScriptedVllm
from tests.handler.loops import on_loop
from tests.handler.scripted_tokenizer import VOCAB_SIZE
from tests.handler.waiting import WITHIN, eventually


class RecordingSink:
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...] | EndpointError] = []
        self.ended = threading.Event()

    def push(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> None:
        self.heard.append((text, tuple(token_ids), finish_reason, stop_reason))
        if finish_reason is not None:
            self.ended.set()

    def fail(self, error: EndpointError) -> None:
        self.heard.append(error)
        self.ended.set()


class RaisingSink(RecordingSink):
    """Cannot take the last tokens."""

    def push(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> None:
        if finish_reason is not None:
            raise ValueError(text)


class Bench:
    """An engine, its vLLM, and one request."""

    def __init__(self, loop: LoopThread, **vllm: Any) -> None:
        self.loop = loop
        self.vllm = self.on_loop(lambda: ScriptedVllm(**vllm))
        self.engine = Engine(self.vllm, loop, ["sample"], 5.0, RequestLimits(CONTEXT, VOCAB_SIZE))
        self.sink = RecordingSink()

    def on_loop(self, function: Callable[[], Any]) -> Any:
        return on_loop(self.loop, function)

    def request(self, prompt: int = 3, stream: bool = True, **sampling: Any) -> EngineRequest:
        return self.engine.request(Generation("r", [1] * prompt, Sampling(**sampling), stream), self.sink)

    def begun(self) -> EngineRequest:
        """A request that vLLM has taken in."""
        request = self.request()
        self.on_loop(request.begin)
        eventually(lambda: request.internal_id is not None)
        return request


@pytest.fixture
def bench(loop: LoopThread) -> Bench:
    return Bench(loop)


def test_nothing_reaches_the_sink_after_its_end(bench: Bench) -> None:
    request = bench.begun()
    bench.on_loop(lambda: request.push("a", [1], "length", None))
    bench.on_loop(lambda: request.push("b", [2], None, None))
    bench.on_loop(lambda: request.push("c", [3], "stop", None))
    bench.on_loop(lambda: request.fail(EngineFailed("late")))
    bench.on_loop(request.cancel)
    assert bench.sink.heard == [("a", (1,), "length", None)]
    assert bench.vllm.aborted == [], "a request that has ended needs no abort"


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_an_end_that_is_no_answer_is_a_failure(bench: Bench, reason: str) -> None:
    request = bench.begun()
    bench.on_loop(lambda: request.push("half", [1], reason, None))
    (heard,) = bench.sink.heard
    assert isinstance(heard, GenerationFailed)
    assert heard.status == 500
    assert reason in heard.message


def test_cancelled_before_it_begins_it_never_reaches_vllm(bench: Bench) -> None:
    request = bench.request()
    bench.on_loop(request.cancel)
    bench.on_loop(request.begin)
    bench.begun()  # a later one is in: the loop has done what it had to do
    assert len(bench.vllm.asked) == 1
    assert bench.engine.unfinished() == 1


def test_cancelled_while_vllm_takes_it_in_its_slot_is_freed(bench: Bench) -> None:
    bench.on_loop(bench.vllm.admitted.clear)
    request = bench.request()
    bench.on_loop(request.begin)
    eventually(lambda: bench.vllm.asked)
    bench.on_loop(request.cancel)
    assert bench.vllm.aborted == []
    bench.on_loop(bench.vllm.admitted.set)
    eventually(lambda: bench.vllm.aborted == ["r-internal"])
    assert bench.engine.unfinished() == 0
    assert bench.sink.heard == []


def test_cancelled_while_it_runs_its_slot_is_freed_once(bench: Bench) -> None:
    request = bench.begun()
    bench.on_loop(lambda: request.push("a", [1], None, None))
    bench.on_loop(request.cancel)
    bench.on_loop(request.cancel)
    eventually(lambda: bench.vllm.aborted)
    bench.on_loop(lambda: request.push("b", [2], "abort", None))
    assert bench.sink.heard == [("a", (1,), None, None)]
    assert bench.vllm.aborted == ["r-internal"]
    assert bench.engine.unfinished() == 0


def test_an_output_that_comes_with_the_taking_in_is_not_lost(bench: Bench) -> None:
    bench.vllm.earlier = ("all", (1, 2), "stop", None)
    bench.on_loop(bench.request().begin)
    assert bench.sink.ended.wait(WITHIN)
    assert bench.sink.heard == [("all", (1, 2), "stop", None)]
    assert bench.vllm.aborted == []


@pytest.mark.parametrize(
    ("raised", "heard"),
    [(InvalidField("prompt", "x"), InvalidField), (EngineFailed("x"), EngineFailed), (KeyError("x"), GenerationFailed)],
)
def test_what_vllm_refuses_reaches_the_sink(bench: Bench, raised: Exception, heard: type[EndpointError]) -> None:
    bench.vllm.refusal = raised
    bench.on_loop(bench.request().begin)
    assert bench.sink.ended.wait(WITHIN)
    assert [type(error) for error in bench.sink.heard] == [heard]


def test_a_request_that_fails_after_it_was_cancelled_tells_nobody(bench: Bench) -> None:
    bench.on_loop(bench.vllm.admitted.clear)
    bench.vllm.refusal = KeyError("x")
    request = bench.request()
    bench.on_loop(request.begin)
    eventually(lambda: bench.vllm.asked)
    bench.on_loop(request.cancel)
    bench.on_loop(bench.vllm.admitted.set)
    bench.vllm.refusal = None
    bench.begun()
    assert bench.sink.heard == []


def test_vllm_is_asked_for_what_the_limits_leave(bench: Bench) -> None:
    bench.on_loop(bench.request(CONTEXT - 5).begin)
    bench.on_loop(bench.request(max_tokens=9).begin)
    eventually(lambda: len(bench.vllm.asked) == 2)
    assert [params.max_tokens for _, params in bench.vllm.asked] == [5, 9]


def test_what_vllms_sampling_refuses_is_refused_before_it_is_queued(bench: Bench) -> None:
    with pytest.raises(InvalidField) as caught:
        bench.request(top_k=-99)
    assert caught.value.param == "top_k"
    assert bench.vllm.asked == []


def test_a_dead_engine_ends_every_request(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench.engine.problem() is None
    request = bench.begun()
    bench.vllm.dead = True
    assert bench.engine.dead()
    assert bench.engine.problem() == "its process ended"
    bench.vllm.exits = [-signal.SIGKILL]
    assert bench.engine.problem() == "its process was ended by SIGKILL, often because memory ran out"
    assert bench.engine.was_killed()
    monkeypatch.setattr(host_memory, "oom_kills", lambda: 10**9)
    assert bench.engine.problem() == "its process was ended by the kernel, because memory ran out"
    assert not bench.engine.was_killed(), "a request may have taken the memory"
    bench.vllm.exits = [-signal.SIGSEGV]
    assert bench.engine.problem() == "its process was ended by SIGSEGV"
    assert not bench.engine.was_killed()
    bench.engine.fail_requests(EngineFailed("its process ended"))
    assert bench.sink.ended.wait(WITHIN)
    (heard,) = bench.sink.heard
    assert isinstance(heard, EngineFailed)
    assert request.ended


def test_stopping_ends_cores_that_are_deaf(loop: LoopThread) -> None:
    core = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    os.kill(core.pid, signal.SIGSTOP)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(WITHIN)
    try:
        bench = Bench(loop, pids=(gone.pid, core.pid))
        bench.engine.stop()
        assert core.wait(WITHIN) == -signal.SIGKILL
        assert bench.vllm.stopped
        assert loop.thread.is_alive(), "it serves the connections, and other engines"
    finally:
        core.kill()
        core.wait(WITHIN)


def test_when_all_requests_are_ended_one_that_vllm_has_not_taken_in_yet_is_too(loop: LoopThread) -> None:
    bench = Bench(loop)
    bench.on_loop(bench.vllm.admitted.clear)  # it waits for a grammar's trial
    bench.on_loop(bench.request().begin)
    eventually(lambda: bench.vllm.asked)
    bench.engine.fail_requests(EngineFailed("it is stopped"))
    assert bench.sink.ended.wait(WITHIN)
    (heard,) = bench.sink.heard
    assert isinstance(heard, EngineFailed)
    assert (heard.reason, heard.in_core) == ("it is stopped", False)
    assert not bench.engine.requests


def test_a_late_request_is_told_so_and_its_slot_is_freed(bench: Bench) -> None:
    request = bench.request()
    late = DeadlineExceeded(1, stream=True)
    bench.on_loop(lambda: request.begin(0.01, late))
    eventually(lambda: bench.vllm.aborted == ["r-internal"])
    assert bench.sink.heard == [late]
    bench.on_loop(lambda: request.push("a", [1], None, None))
    assert bench.sink.heard == [late]


def is_queued(request: EngineRequest) -> bool:
    return request.internal_id is not None


def test_a_request_that_has_ended_is_never_late(loop: LoopThread) -> None:
    late = DeadlineExceeded(1, stream=True)
    for deadline in (0.02, 0.5, 10):  # on a busy machine it may be late before it has ended
        bench = Bench(loop)
        request = bench.request()
        bench.on_loop(partial(request.begin, deadline, late))
        eventually(partial(is_queued, request))
        bench.on_loop(partial(request.push, "a", [1], "stop", None))
        if bench.sink.heard != [late]:
            break
    bench.loop.run(asyncio.sleep(2 * deadline))
    assert bench.sink.heard == [("a", (1,), "stop", None)]
    assert bench.vllm.aborted == []


def test_a_request_whose_last_tokens_cannot_be_told_fails(bench: Bench) -> None:
    bench.sink = RaisingSink()
    request = bench.begun()
    with pytest.raises(ValueError, match="end"):
        bench.on_loop(lambda: request.push("end", (1,), "stop", None))
    bench.on_loop(lambda: request.fail(GenerationFailed("its reply")))  # as the path of tokens does
    assert [type(each) for each in bench.sink.heard] == [GenerationFailed]
