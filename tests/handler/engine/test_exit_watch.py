"""The end of a process that somebody else started is heard once, also where it was over before anybody listened."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator

import psutil
import pytest
from loops import on_loop
from waiting import WITHIN

from handler.engine.event_loop import LoopThread
from handler.engine.exit_watch import on_exit


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", str(WITHIN)]) as made:
        yield made
        made.kill()


def test_it_is_heard_when_it_ends_and_not_before(loop: LoopThread, process: subprocess.Popen[bytes]) -> None:
    ended, before = threading.Event(), psutil.Process().num_fds()
    on_loop(loop, lambda: on_exit(process.pid, loop.loop, ended.set))
    on_loop(loop, lambda: None)
    assert not ended.is_set()
    process.kill()
    assert ended.wait(WITHIN)
    assert on_loop(loop, lambda: psutil.Process().num_fds()) == before


def test_one_that_is_gone_already_is_heard_at_once(loop: LoopThread, process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(WITHIN)
    ended = threading.Event()
    on_loop(loop, lambda: on_exit(process.pid, loop.loop, ended.set))
    assert ended.is_set()
