from __future__ import annotations

import threading

import pytest

from handler.errors import Draining, EngineFailed, NotReady
from handler.startup.lifecycle import Lifecycle, ServingStatus


class Told:
    """A lifecycle and what it told."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.readies = 0
        self.failures: list[str] = []
        self.life = Lifecycle(self._stage, self._ready, self.failures.append)

    def _stage(self, stage: str, seconds: float) -> None:
        assert seconds >= 0
        self.stages.append(stage)

    def _ready(self) -> None:
        self.readies += 1


def test_a_start_goes_through_its_stages_to_ready() -> None:
    told = Told()
    life = told.life
    for stage in ("fetch model", "start engine", "warm up"):
        life.stage(stage)
        assert (life.status.state, life.status.stage) == (ServingStatus.STARTING, stage)
        with pytest.raises(NotReady, match=stage):
            life.require_ready()
    assert not life.served
    life.ready()
    life.require_ready()
    assert life.served
    assert told.stages == ["bind port", "fetch model", "start engine", "warm up"]
    assert (told.readies, told.failures) == (1, [])


def test_progress_belongs_to_its_stage() -> None:
    life = Lifecycle()
    life.stage("fetch model")
    life.progress(5, 10)
    assert (life.status.done, life.status.total, life.status.stage) == (5, 10, "fetch model")
    life.stage("start engine")
    assert (life.status.done, life.status.total) == (0, 0)


def test_it_is_ready_once() -> None:
    told = Told()
    told.life.ready()
    told.life.ready()
    told.life.stage("late")
    assert told.life.status.state is ServingStatus.READY
    assert told.readies == 1
    assert told.stages == ["bind port"]


def test_draining_takes_nothing_new_and_does_not_turn_ready() -> None:
    for started in (False, True):
        told = Told()
        if started:
            told.life.ready()
        told.life.drain()
        with pytest.raises(Draining):
            told.life.require_ready()
        told.life.stage("warm up")
        told.life.ready()
        assert told.life.status.state is ServingStatus.DRAINING
        assert told.readies == int(started)


def test_a_failure_is_told_once_with_its_first_reason_and_stays() -> None:
    told = Told()
    told.life.stage("start engine")
    told.life.fail("no memory")
    told.life.fail("something later")
    told.life.drain()
    told.life.ready()
    told.life.stage("warm up")
    assert told.failures == ["no memory"]
    assert (told.life.status.state, told.life.status.stage) == (ServingStatus.FAILED, "start engine")
    assert (told.readies, told.life.served) == (0, False)
    with pytest.raises(EngineFailed, match="could not start"):
        told.life.require_ready()


def test_a_failure_while_draining_is_the_graver_news() -> None:
    told = Told()
    told.life.ready()
    told.life.drain()
    told.life.fail("its process ended")
    assert told.life.status.state is ServingStatus.FAILED
    assert told.life.served


def test_a_start_that_fails_while_it_drains_has_not_failed() -> None:
    told = Told()
    told.life.stage("warm up")
    told.life.drain()
    told.life.fail("its process ended")
    assert told.life.status.state is ServingStatus.DRAINING
    assert told.failures == []


def test_a_listener_may_ask_the_lifecycle_itself() -> None:
    seen: list[ServingStatus] = []
    life = Lifecycle(failed=lambda reason: seen.append(life.status.state))
    thread = threading.Thread(target=life.fail, args=("x",), daemon=True)
    thread.start()
    thread.join(5)
    assert seen == [ServingStatus.FAILED]
