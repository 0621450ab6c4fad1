"""A request in vLLM's serving classes ends once, gives everything back, and tells its sink nothing afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from handler.engine import engine_request
from handler.engine.adapters.adapter_errors import AdapterNotFound
from handler.engine.engine_request import ServingRequest
from handler.engine.event_loop import LoopThread
from handler.errors import DeadlineExceeded, EndpointError, EngineFailed, GenerationFailed, InvalidField
from tests.handler.waiting import eventually

WHOLE = SimpleNamespace(document="whole")


class Sink:
    def __init__(self) -> None:
        self.heard: list[str] = []
        self.ended = False
        self.error: EndpointError | None = None
        self.on_push: Callable[[], None] = lambda: None

    def push(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> None:
        assert not self.ended
        assert self.error is None
        self.ended = finish_reason is not None
        if text:
            self.heard.append(text)
        self.on_push()

    def fail(self, error: EndpointError) -> None:
        assert not self.ended
        assert self.error is None
        self.error = error


class Serving:
    """:ivar closed: streams whose end was reached, one way or the other."""

    def __init__(self, *script: object) -> None:
        self.script = script
        self.gate = asyncio.Event()
        self.begun = 0
        self.closed = 0
        self.adapters: list[tuple[str, object]] = []

    def use_adapter(self, prepared: object, name: str, request: object) -> None:
        self.adapters.append((name, request))

    async def reply(self, prepared: object) -> Any:
        self.begun += 1
        first = self.script[0]
        if first == "wait":
            await self.gate.wait()
        if isinstance(first, Exception):
            raise first
        return WHOLE if first == "whole" else self._stream()

    async def _stream(self) -> AsyncIterator[str]:
        try:
            for step in self.script:
                if step == "wait":
                    await self.gate.wait()
                elif isinstance(step, Exception):
                    raise step
                else:
                    yield str(step)
        finally:
            self.closed += 1


class Adapters:
    def __init__(self) -> None:
        self.running = 0

    def begin(self, name: str) -> SimpleNamespace | None:
        if name == "base":
            return None
        if name != "tuned":
            raise AdapterNotFound(name)
        self.running += 1
        return SimpleNamespace(request="tuned#1")

    def end(self, adapter: object) -> None:
        self.running -= 1


class Case:
    def __init__(self, loop: LoopThread, *script: object, model: str | None = None) -> None:
        self.loop = loop
        self.serving = Serving(*script)
        self.adapters = Adapters()
        self.engine = SimpleNamespace(
            loop=loop, requests=set(), adapters=self.adapters, base_names=("base",), failure=None
        )
        self.sink = Sink()
        self.kept: list[object] = []
        prepared: Any = SimpleNamespace(model=model)
        engine: Any = self.engine
        serving: Any = self.serving
        self.request = ServingRequest(engine, self.sink, serving, prepared, self.kept.append)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        async def run() -> None:
            function(*arguments)

        self.loop.run(run())

    def over(self) -> None:
        """Nothing is left of it."""
        eventually(lambda: not self.engine.requests)
        assert self.adapters.running == 0


def test_events_reach_the_sink_in_order_and_then_the_end(loop: LoopThread) -> None:
    case = Case(loop, "a", "b", "c")
    case.call(case.request.begin)
    eventually(lambda: case.sink.ended)
    assert case.sink.heard == ["a", "b", "c"]
    case.over()


def test_a_document_is_kept_before_the_end_is_told(loop: LoopThread) -> None:
    case = Case(loop, "whole")
    case.sink.on_push = lambda: case.kept.append("told")
    case.call(case.request.begin)
    eventually(lambda: case.sink.ended)
    assert case.kept == [WHOLE, "told"]
    case.over()


@pytest.mark.parametrize("script", [("wait",), ("a", "wait", "b")])
def test_a_client_that_leaves_ends_it_without_a_word(loop: LoopThread, script: tuple[str, ...]) -> None:
    case = Case(loop, *script)
    case.call(case.request.begin)
    eventually(lambda: case.serving.begun == 1)
    case.call(case.request.cancel)
    case.over()
    assert case.sink.error is None
    assert not case.sink.ended
    assert case.serving.closed == (1 if len(script) > 1 else 0)


def test_one_that_leaves_before_it_begins_never_begins(loop: LoopThread) -> None:
    case = Case(loop, "a")
    case.call(case.request.cancel)
    case.call(case.request.begin)
    case.over()
    assert case.serving.begun == 0


def test_one_that_leaves_as_it_begins_gives_its_adapter_back(loop: LoopThread) -> None:
    case = Case(loop, "a", model="tuned")

    def begin_and_leave() -> None:
        case.request.begin()
        case.request.cancel()

    case.call(begin_and_leave)
    case.over()
    assert case.serving.begun == 0


def test_a_client_that_is_cut_off_while_it_is_written_to(loop: LoopThread) -> None:
    case = Case(loop, "a", "b", "wait", "c")
    case.sink.on_push = case.request.cancel
    case.call(case.request.begin)
    case.over()
    assert case.sink.heard == ["a"]
    assert case.serving.closed == 1


@pytest.mark.parametrize("script", [("wait",), ("a", "wait")])
def test_a_deadline_and_a_dying_engine_are_told(loop: LoopThread, script: tuple[str, ...]) -> None:
    case = Case(loop, *script)
    case.call(case.request.begin, 0.01, DeadlineExceeded(0.01, stream=False))
    eventually(lambda: isinstance(case.sink.error, DeadlineExceeded))
    case.over()
    case = Case(loop, *script)
    case.call(case.request.begin, 100.0, DeadlineExceeded(100.0, stream=False))
    case.call(case.request.end, EngineFailed("its process ended"))
    case.call(case.request.end, EngineFailed("again"))
    eventually(lambda: isinstance(case.sink.error, EngineFailed))
    case.over()


@pytest.mark.parametrize(
    ("error", "kind"),
    [(InvalidField("a", "b"), InvalidField), (KeyError("secret"), GenerationFailed)],
)
def test_an_error_before_or_in_the_stream_is_told(
    loop: LoopThread, error: Exception, kind: type[EndpointError]
) -> None:
    for script in ((error,), ("a", error)):
        case = Case(loop, *script)
        case.call(case.request.begin)
        case.over()
        assert isinstance(case.sink.error, kind)
        assert "secret" not in case.sink.error.message


def test_an_adapter_is_held_while_it_is_used(loop: LoopThread) -> None:
    case = Case(loop, "wait", model="tuned")
    case.call(case.request.begin)
    assert case.adapters.running == 1
    assert case.serving.adapters == [("tuned", "tuned#1")]
    case.loop.call(case.serving.gate.set)
    case.over()
    gone = Case(loop, "a", model="gone")
    gone.call(gone.request.begin)
    assert isinstance(gone.sink.error, AdapterNotFound)
    gone.over()


def test_events_that_are_there_already_let_other_tasks_run_in_between(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_request, "LONGEST_TURN", 0.0)
    case = Case(loop, *("a" for _ in range(300)))
    turns: list[int] = []

    def turn() -> None:
        if not case.sink.ended:
            turns.append(len(case.sink.heard))
            loop.loop.call_soon(turn)

    def begin() -> None:
        case.request.begin()
        turn()

    case.call(begin)
    eventually(lambda: case.sink.ended)
    assert len(set(turns)) > 250
