"""The one rule for what runs on the loop and what in a thread: it is a matter of size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

Result = TypeVar("Result")
# Bytes. A tokenizer takes a millisecond for a few thousand characters. The tokens of all other requests wait that long.
SMALL: Final = 8 * 1024
# They wait for each other's interpreter lock. More of them would only hold more bodies.
THREADS: Final = 8


class WorkThreads:
    """Parses bodies and makes replies."""

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
