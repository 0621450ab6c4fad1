"""A core that ends while vLLM waits for it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading

import pytest

from handler.engine import core_end
from handler.engine.core_end import core_watched
from tests.handler.waiting import WITHIN

CONTEXT = multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_end, "INTERVAL", 0.01)
    monkeypatch.setattr(core_end, "GRACE", 0.1)


def test_a_core_that_is_killed_is_noticed_while_somebody_waits_for_it() -> None:
    reasons: list[str] = []
    noticed = threading.Event()

    def hear(reason: str) -> None:
        reasons.append(reason)
        noticed.set()

    with core_watched(hear):
        core = CONTEXT.Process(target=signal.pause)
        core.start()
        assert core.pid is not None
        assert not noticed.wait(0.2), "it lives"
        os.kill(core.pid, signal.SIGKILL)
        assert noticed.wait(WITHIN)
    (reason,) = reasons
    assert "SIGKILL" in reason


def test_who_notices_it_himself_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_end, "GRACE", WITHIN)
    reasons: list[str] = []
    with core_watched(reasons.append):
        core = CONTEXT.Process(target=os._exit, args=(3,))
        core.start()
        core.join(WITHIN)
    assert core.exitcode == 3
    assert reasons == []


def test_a_process_of_somebody_else_does_not_count() -> None:
    other = CONTEXT.Process(target=signal.pause)
    other.start()
    noticed = threading.Event()
    with core_watched(lambda reason: noticed.set()):
        other.kill()
        other.join(WITHIN)
        assert not noticed.wait(0.5)
