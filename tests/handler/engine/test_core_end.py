"""A core that ends while vLLM waits for it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess

import pytest

from handler.engine import core_end
from handler.engine.core_end import CoreEnded, started
from handler.engine.event_loop import LoopThread
from tests.handler.loops import end_loop
from tests.handler.waiting import WITHIN

CONTEXT = multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_end, "INTERVAL", 0.01)
    monkeypatch.setattr(core_end, "GRACE", 0.1)


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread.start("test-loop")
    yield loop
    end_loop(loop)


def process(target: Callable[..., object], *arguments: object) -> BaseProcess:
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    return process


def test_a_core_that_is_killed_is_noticed_while_vllm_waits_for_it(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores: list[BaseProcess] = []
    cancelled: list[bool] = []

    def kills_one_that_was_seen() -> list[BaseProcess]:
        seen = multiprocessing.active_children()
        for core in set(cores) & set(seen):
            os.kill(core.pid or 0, signal.SIGKILL)
        return seen

    async def start() -> None:
        cores.append(await asyncio.to_thread(process, signal.pause))
        try:
            await loop.loop.create_future()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    monkeypatch.setattr(core_end, "active_children", kills_one_that_was_seen)
    with pytest.raises(CoreEnded, match="SIGKILL") as caught:
        started(loop, start())
    assert caught.value.statuses == [-signal.SIGKILL]
    end_loop(loop)
    assert cancelled == [True]


def test_what_vllm_says_itself_is_the_reason(loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_end, "GRACE", WITHIN)

    async def start() -> None:
        core = await asyncio.to_thread(process, os._exit, 3)
        await asyncio.to_thread(core.join, WITHIN)
        raise RuntimeError(f"the core has exited with {core.exitcode}")

    with pytest.raises(RuntimeError, match="exited with 3"):
        started(loop, start())


def test_a_process_of_somebody_else_does_not_count(loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    other = process(signal.pause)
    looks = 0
    enough = asyncio.Event()

    def counted() -> list[BaseProcess]:
        nonlocal looks
        looks += 1
        if looks == 2:
            other.kill()
            other.join(WITHIN)
        if looks == 6:
            loop.call(enough.set)
        return multiprocessing.active_children()

    async def start() -> str:
        await enough.wait()
        return "started"

    monkeypatch.setattr(core_end, "active_children", counted)
    assert started(loop, start()) == "started"


def test_a_signal_without_a_name_has_its_number() -> None:
    number = signal.SIGRTMIN + 1
    assert str(CoreEnded([-number])) == f"the engine's process was ended by signal {number}"
