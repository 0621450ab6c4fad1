from __future__ import annotations

import threading

from handler.engine.event_loop import LoopThread
from tests.handler.waiting import WITHIN, eventually


def test_a_coroutine_runs_on_the_loops_own_thread_and_its_result_comes_back(loop: LoopThread) -> None:
    async def where() -> threading.Thread:
        return threading.current_thread()

    assert loop.run(where(), WITHIN) is loop.thread
    assert loop.thread.daemon, "a loop that hangs must not keep the process"


def test_stopping_ends_the_thread_and_may_be_repeated(loop: LoopThread) -> None:
    loop.stop()
    eventually(lambda: not loop.thread.is_alive())
    loop.stop()
