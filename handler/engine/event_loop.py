"""An asyncio event loop in its own thread, and the threads for what would hold it up.

One loop serves the connections and the engines of a serving process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

Result = TypeVar("Result")
# Bytes. A tokenizer takes a millisecond for a few thousand characters. The tokens of all other requests wait that long.
SMALL: Final = 8 * 1024
# They wait for each other's interpreter lock. More of them would only hold more bodies.
THREADS: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class LoopThread:
    """A running uvloop event loop in a daemon thread. Create it with `LoopThread.start()`."""

    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @classmethod
    def start(cls, name: str) -> LoopThread:
        import uvloop

        loop = uvloop.new_event_loop()
        thread = threading.Thread(target=_run, args=(loop,), name=name, daemon=True)
        thread.start()
        return cls(loop, thread)

    def run(self, coroutine: Coroutine[Any, Any, Result], timeout: float | None = None) -> Result:
        """Runs a coroutine on the loop and waits for its result. Never call it from the loop's own thread."""
        return self.spawn(coroutine).result(timeout)

    def spawn(self, coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Schedules a function call on the loop, and returns at once. Call from any thread."""
        self.loop.call_soon_threadsafe(function, *arguments)

    def task(self, coroutine: Coroutine[Any, Any, object], context: Context | None = None) -> None:
        """Runs a coroutine as a task, and keeps a reference to it until it ends. Call from the loop's own thread.

        :param context: of its variables; None: a copy of the caller's.
        """
        task = self.loop.create_task(coroutine, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def tasks(self) -> int:
        """How many tasks have not ended, those of vLLM included. Call from any thread."""
        return len(asyncio.all_tasks(self.loop))

    def stop(self, timeout: float = 5.0) -> None:
        """Cancels the loop's tasks, stops the loop and closes its file descriptors."""
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self._end)
            self.thread.join(timeout)
        if not self.thread.is_alive():
            self.loop.close()

    def _end(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.call_soon(self.loop.stop)  # after the cancelled tasks have run


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


class WorkThreads:
    """The one rule for what runs on the loop and what in a thread: it is a matter of size."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "requests")

    async def run(self, size: float, function: Callable[..., Result], *arguments: object) -> Result:
        """Calls a function whose time grows with the size of what it works on: in a thread, if that is large.

        Waking a thread costs as much as parsing a small body, and then both compete for the interpreter.

        :param size: bytes.
        """
        if size <= SMALL:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *arguments))
