"""Calls on the engine's loop from a test's thread, and its quiet end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from handler.engine.event_loop import LoopThread
from tests.handler.waiting import WITHIN

Result = TypeVar("Result")


def on_loop(loop: LoopThread, function: Callable[[], Result]) -> Result:
    """Calls a function on the loop and waits for it."""

    async def call() -> Result:
        return function()

    return loop.run(call(), WITHIN)


def end_loop(loop: LoopThread) -> None:
    """Cancels what still runs, then stops: a pending task would complain when it is collected."""

    async def cancel() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    if loop.thread.is_alive():
        loop.run(cancel(), WITHIN)
        loop.stop()
