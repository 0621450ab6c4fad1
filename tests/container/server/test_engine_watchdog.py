from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from container.server import engine_watchdog as module
from container.server.engine_watchdog import watch_engine
from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.errors import EngineFailed
from handler.startup.lifecycle import COMPILED, PUBLISH, ServingStatus
from tests.container.http_client import http_client
from tests.container.scripted_engine import ScriptedEngine
from tests.handler.waiting import WITHIN, eventually


class Watched:
    """The watchdog in its thread."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.ended = threading.Event()
        self.thread = threading.Thread(target=watch_engine, args=(service, self.ended.set, lambda: None), daemon=True)
        self.thread.start()


@pytest.fixture
def watched(service: Service, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    for name in ("LINGER", "START_LINGER"):
        monkeypatch.setattr(module, name, 0.02)
    monkeypatch.setattr(module, "INTERVAL", 0.005)
    watched = Watched(service)
    yield watched
    service.lifecycle.fail("the test is over")
    watched.thread.join(WITHIN)
    assert not watched.thread.is_alive()


def turns(watched: Watched, count: int = 5) -> None:
    """Returns after the watchdog has looked several times."""
    seen = 0
    original = watched.service.engine.stalled_for  # type: ignore[union-attr]

    def looked() -> float:
        nonlocal seen
        seen += 1
        return original()

    watched.service.engine.stalled_for = looked  # type: ignore[union-attr, method-assign]
    eventually(lambda: seen >= count)


def test_a_dead_engine_fails_the_service_ends_its_requests_and_then_the_process(
    watched: Watched, engine: ScriptedEngine, service: Service
) -> None:
    replies: list[Any] = []
    request = threading.Thread(
        target=lambda: replies.append(http_client(service).post("/invocations", json={"prompt": "<hold>"}))
    )
    request.start()
    eventually(lambda: engine.unfinished() == 1)
    engine.is_dead = True
    assert watched.ended.wait(WITHIN)
    request.join(WITHIN)
    assert service.lifecycle.status.state is ServingStatus.FAILED
    assert replies[0].status_code == 503, "nobody hangs"
    assert engine.stopped
    assert [type(error) for error in engine.failures] == [EngineFailed]


def test_a_stall_that_is_short_is_let_pass_and_one_that_stays_is_not(
    watched: Watched, engine: ScriptedEngine, service: Service
) -> None:
    engine.silent = service.config.stall * 2
    turns(watched)
    assert service.lifecycle.status.state is ServingStatus.READY
    engine.silent = service.config.stall * module.STALL_TIMES + 1
    assert watched.ended.wait(WITHIN)
    assert "no progress" in service.lifecycle.status.reason
    assert engine.stopped


def test_a_start_that_failed_ends_the_process_without_an_engine(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "START_LINGER", 0.0)
    monkeypatch.setattr(module, "INTERVAL", 0.005)
    starting = Service.of(service.config, loop=service.loop)
    watched = Watched(starting)
    starting.lifecycle.stage("fetch model")
    starting.lifecycle.fail("no bucket")
    assert watched.ended.wait(WITHIN)


def test_ping_can_be_seen_to_fail_before_the_process_ends(
    service: Service, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lingering = threading.Event()
    go_on = threading.Event()

    def sleep(seconds: float) -> None:
        if seconds == module.LINGER:
            lingering.set()
            assert go_on.wait(WITHIN)

    monkeypatch.setattr(time, "sleep", sleep)
    engine.is_dead = True
    watched = Watched(service)
    assert lingering.wait(WITHIN)
    assert http_client(service).get("/ping").status_code == 500
    assert not watched.ended.is_set()
    assert not engine.stopped
    go_on.set()
    assert watched.ended.wait(WITHIN)


def test_a_process_that_another_one_follows_ends_at_once(
    service: Service, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    service.recovery.successor = lambda: True
    engine.is_dead = True
    assert Watched(service).ended.wait(WITHIN)
    assert set(slept) == {module.INTERVAL}


def test_while_it_drains_a_dead_engine_is_still_seen(
    watched: Watched, engine: ScriptedEngine, service: Service
) -> None:
    service.lifecycle.drain()
    engine.is_dead = True
    assert watched.ended.wait(WITHIN)
    assert service.lifecycle.status.state is ServingStatus.FAILED


class Starting:
    """A start that has its engine, and the watchdog, whose turns are counted."""

    def __init__(self, engine: ScriptedEngine, config: EndpointConfig, stage: str) -> None:
        self.service = Service.of(config, loop=engine.loop)
        self.service.engine = engine  # type: ignore[assignment]  # a stand-in
        self.service.lifecycle.stage(stage)
        self.turns = 0
        self.ended = threading.Event()
        arguments = (self.service, self.ended.set, self._turn)
        threading.Thread(target=watch_engine, args=arguments, daemon=True).start()

    def _turn(self) -> None:
        self.turns += 1

    def looked(self) -> None:
        """Returns after the watchdog has looked several times."""
        end = self.turns + 5
        eventually(lambda: self.turns >= end)

    def state(self) -> ServingStatus:
        return self.service.lifecycle.status.state


@pytest.fixture
def starting(
    service: Service, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, float], Starting]]:
    monkeypatch.setattr(module, "INTERVAL", 0.005)
    starts: list[Starting] = []

    def start(stage: str, explained_within: float) -> Starting:
        for name, seconds in {"EXPLAINED_WITHIN": explained_within, "LINGER": 0.0, "START_LINGER": 0.0}.items():
            monkeypatch.setattr(module, name, seconds)
        starts.append(Starting(engine, service.config, stage))
        return starts[-1]

    yield start
    for each in starts:
        each.service.lifecycle.ready()
        each.service.lifecycle.fail("the test is over")
        assert each.ended.wait(WITHIN)


def test_an_engine_that_dies_in_a_start_that_does_not_notice_it_fails_the_start(
    starting: Callable[[str, float], Starting], engine: ScriptedEngine
) -> None:
    start = starting("load inference.py", 0.0)
    start.looked()
    assert start.state() is ServingStatus.STARTING, "it lives"
    engine.is_dead = True
    assert start.ended.wait(WITHIN)
    assert start.service.lifecycle.status.reason.startswith("load inference.py: the engine's process")
    assert engine.stopped


def test_a_start_that_says_itself_why_its_engine_died_is_not_interrupted(
    starting: Callable[[str, float], Starting], engine: ScriptedEngine
) -> None:
    start = starting("warm up", WITHIN)
    engine.is_dead = True
    start.looked()
    assert start.state() is ServingStatus.STARTING
    start.service.lifecycle.fail("the sampler is broken")
    assert start.ended.wait(WITHIN)
    assert start.service.lifecycle.status.reason == "the sampler is broken"


@pytest.mark.parametrize("stage", [PUBLISH, COMPILED])
def test_what_was_compiled_is_saved_although_the_engine_is_dead(
    starting: Callable[[str, float], Starting], engine: ScriptedEngine, stage: str
) -> None:
    start = starting(stage, 0.0)
    engine.is_dead = True
    start.looked()
    assert start.state() is ServingStatus.STARTING
    start.service.lifecycle.ready()
    assert start.ended.wait(WITHIN)
    assert start.service.lifecycle.served, "another process follows it, which loads what was saved"
