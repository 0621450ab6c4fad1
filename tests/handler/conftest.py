"""What the tests of `handler` share; the helpers beside this file are importable from every folder below it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loops import end_loop

from handler.engine.event_loop import LoopThread


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread.start("test-loop")
    yield loop
    end_loop(loop)
