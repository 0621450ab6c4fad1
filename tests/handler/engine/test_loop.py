from __future__ import annotations

import asyncio
import threading

import pytest
from waiting import WITHIN, eventually

from handler.engine.event_loop import LoopThread


def test_a_coroutine_runs_on_the_loops_own_thread_and_its_result_comes_back(loop: LoopThread) -> None:
    async def where() -> threading.Thread:
        return threading.current_thread()

    assert loop.run(where(), WITHIN) is loop.thread
    assert loop.thread.daemon, "a loop that hangs must not keep the process"


def test_what_a_coroutine_raises_is_raised_where_it_is_awaited(loop: LoopThread) -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        loop.run(fail(), WITHIN)
    assert loop.thread.is_alive()


def test_waiting_is_bounded(loop: LoopThread) -> None:
    with pytest.raises(TimeoutError):
        loop.run(asyncio.Event().wait(), 0.01)


def test_calls_come_in_order_and_one_that_raises_does_not_end_the_loop(loop: LoopThread) -> None:
    seen: list[int] = []
    done = threading.Event()
    loop.call(seen.append, 1)
    loop.call(lambda: 1 / 0)
    loop.call(seen.append, 2)
    loop.call(done.set)
    assert done.wait(WITHIN)
    assert seen == [1, 2]


def test_what_was_spawned_can_be_cancelled(loop: LoopThread) -> None:
    begun = threading.Event()
    cancelled = threading.Event()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    future = loop.spawn(forever())
    assert begun.wait(WITHIN)
    future.cancel()
    assert cancelled.wait(WITHIN)


def test_stopping_ends_the_thread_and_may_be_repeated(loop: LoopThread) -> None:
    loop.stop()
    eventually(lambda: not loop.thread.is_alive())
    loop.stop()
