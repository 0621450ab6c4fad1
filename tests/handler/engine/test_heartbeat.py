"""Stalled or only busy: told apart by the CPU time of real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from handler.engine import heartbeat as module
from handler.engine.event_loop import LoopThread
from handler.engine.heartbeat import Heartbeat, cpu_seconds
from tests.handler.waiting import WITHIN, eventually

STALL = 0.2


class Core:
    """A child that burns CPU, and a probe that it answers or not."""

    def __init__(self, loop: LoopThread) -> None:
        self.loop = loop
        self.process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        self.answers = asyncio.Event()
        self.answered = 0

    async def probe(self) -> None:
        await self.answers.wait()
        self.answered += 1

    def watched(self, stall: float = STALL) -> Heartbeat:
        """A heartbeat whose first probe is sent and not yet answered."""
        heartbeat = Heartbeat(self.probe, [self.process.pid], stall)
        self.loop.spawn(heartbeat.run())
        eventually(lambda: heartbeat.late() > 0)
        return heartbeat

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def burn(self) -> None:
        """Returns when it does compute."""
        eventually(lambda: cpu_seconds([self.process.pid]) > 0.1)

    def answer(self) -> None:
        self.loop.call(self.answers.set)


@pytest.fixture
def core(loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> Iterator[Core]:
    monkeypatch.setattr(module, "INTERVAL", 0.01)
    monkeypatch.setattr(module, "BUSY_FACTOR", 10_000)
    core = Core(loop)
    yield core
    core.process.kill()
    core.process.wait(WITHIN)


def test_a_stopped_core_is_stalled_once_it_is_late_and_no_earlier(core: Core) -> None:
    core.stop()
    heartbeat = core.watched()
    eventually(heartbeat.stalled)
    assert heartbeat.late() >= STALL


def test_a_core_that_computes_is_late_but_not_stalled(core: Core) -> None:
    core.burn()
    heartbeat = core.watched()
    eventually(lambda: heartbeat.late() > 3 * STALL)
    assert not heartbeat.stalled()


def test_a_core_that_computes_for_ever_is_stalled_in_the_end(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_FACTOR", 2)
    core.burn()
    heartbeat = core.watched()
    eventually(heartbeat.stalled)
    assert heartbeat.late() >= 2 * STALL


def test_a_core_that_answers_again_is_stalled_no_more(core: Core) -> None:
    core.stop()
    heartbeat = core.watched()
    eventually(heartbeat.stalled)
    core.answer()
    eventually(lambda: core.answered > 3)
    assert not heartbeat.stalled()


def test_a_core_that_is_gone_is_stalled(core: Core) -> None:
    core.burn()
    heartbeat = core.watched()
    core.process.kill()
    core.process.wait(WITHIN)
    eventually(heartbeat.stalled)


def test_before_the_first_question_nothing_is_late() -> None:
    async def probe() -> None:
        raise AssertionError

    heartbeat = Heartbeat(probe, [], STALL)
    assert heartbeat.late() == 0.0
    assert not heartbeat.stalled()


def test_an_engine_that_can_no_longer_be_asked_becomes_stalled(core: Core) -> None:
    async def probe() -> None:
        raise ConnectionError

    heartbeat = Heartbeat(probe, [], STALL)
    core.loop.spawn(heartbeat.run())
    eventually(heartbeat.stalled)
