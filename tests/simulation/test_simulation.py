"""A fleet in virtual time, and the death of whoever compiles at every step of it.

FLEET=1000 lets every one of those deaths happen to a fleet of that size; else one such fleet meets them all in a row.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from handler.artifacts.lease.acquisition import AcquisitionOptions, OnMiss
from handler.artifacts.lease.compile_errors import AcquireTimedOut, CompileFailed, FailedBefore
from tests.simulation.fleet import Scenario, simulate
from tests.simulation.fleet_check import violations
from tests.simulation.fleet_fate import Death

SMALL = int(os.environ.get("FLEET", "12"))
# Two renewals within a compile, so that each kind of step is there and none a hundred times.
SHORT = 50.0


@pytest.fixture
def place() -> Iterator[Path]:
    """In memory where there is such a file system: a thousand restores are bound by the disk otherwise."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="fleet-", dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


def steps(directory: Path) -> list[str]:
    """What the one that compiles does, from taking the lease to releasing it."""
    fleet = simulate(Scenario(instances=2, compile=SHORT), directory / "dry")
    return max(fleet.deaths.steps.values(), key=len)


def every_death(directory: Path, frozen: float | None = None) -> list[Death]:
    count = len(steps(directory))
    return [Death(step, after, frozen) for step in range(count) for after in (False, True)]


def test_the_steps_are_those_of_the_protocol(place: Path) -> None:
    done = steps(place)
    assert done[0] == done[-1] == "put leases"
    assert done.count("put manifests") == 2
    assert done.index("compile") < done.index("compiled") < done.index("upload objects") < done.index("put manifests")
    assert "put leases" in done[done.index("compile") : done.index("compiled")], "renewed while it compiles"


@pytest.mark.slow
def test_a_thousand_instances_compile_once(place: Path) -> None:
    scenario = Scenario(instances=1000)
    fleet = simulate(scenario, place)
    assert list(violations(scenario, fleet)) == []
    assert fleet.compiles == {"begun": 1, "finished": 1}
    rates = fleet.rates()
    # The waiters' polls: one request each in ten seconds on the mean, with jitter and without bursts.
    polls = [rates.get(second, 0) for second in range(120, 880)]
    assert 90 < sum(polls) / len(polls) < 115
    assert max(polls) < 2 * 100
    assert max(rates.values()) < 2000, "of the 5,500 a second that S3 serves below one prefix"


def test_the_one_that_compiles_dies_at_every_step(place: Path) -> None:
    for number, death in enumerate(every_death(place)):
        scenario = Scenario(SMALL, compile=SHORT, deadline=600, deaths=[death], seed=number)
        fleet = simulate(scenario, place / str(number))
        assert list(violations(scenario, fleet)) == [], death
        assert fleet.compiles["begun"] <= 2


@pytest.mark.slow
def test_a_thousand_meet_every_death_in_a_row(place: Path) -> None:
    """Until the first manifest, that is: from there on nobody takes the lease any more, or compiles less."""
    first = steps(place).index("put manifests")
    deaths = [death for death in every_death(place) if death.step < first]
    scenario = Scenario(instances=1000, compile=SHORT, deadline=20_000, deaths=deaths)
    fleet = simulate(scenario, place)
    assert list(violations(scenario, fleet)) == []
    assert max(fleet.rates().values()) < 2000


@pytest.mark.parametrize("frozen", [90.0, 400.0])
def test_one_that_stands_still_does_not_publish_over_its_successor(place: Path, frozen: float) -> None:
    for number, death in enumerate(every_death(place, frozen)):
        scenario = Scenario(SMALL, compile=SHORT, deadline=900, deaths=[death], seed=number)
        fleet = simulate(scenario, place / str(number))
        assert list(violations(scenario, fleet)) == [], death


def test_a_store_that_fails_now_and_then(place: Path) -> None:
    for seed in range(8):
        scenario = Scenario(SMALL, compile=SHORT, deadline=3600, faults=0.05, seed=seed)
        fleet = simulate(scenario, place / str(seed))
        assert list(violations(scenario, fleet)) == []


def test_a_failure_ends_the_whole_fleet_at_once(place: Path) -> None:
    scenario = Scenario(instances=200, compile=SHORT, failing=True)
    fleet = simulate(scenario, place)
    assert list(violations(scenario, fleet)) == []
    assert fleet.compiles["begun"] == 1
    errors = [type(instance.error) for instance in fleet.instances]
    assert errors.count(CompileFailed) == 1
    assert errors.count(FailedBefore) == 199
    assert max(instance.ended or 0.0 for instance in fleet.instances) < 60 + SHORT + 30


def test_nobody_waits_for_ever(place: Path) -> None:
    """For a compile that never ends: its lease is renewed until its own deadline, and the others give up at theirs."""
    scenario = Scenario(instances=50, compile=1e6, deadline=300)
    fleet = simulate(scenario, place)
    ended = [instance for instance in fleet.alive if isinstance(instance.error, AcquireTimedOut)]
    assert len(ended) >= 45
    assert all((instance.ended or 0.0) - instance.began < 300 * 1.02 + 20 for instance in ended)


def test_those_who_only_wait_never_compile(place: Path) -> None:
    scenario = Scenario(instances=20, deadline=200, options=AcquisitionOptions(on_miss=OnMiss.WAIT))
    fleet = simulate(scenario, place)
    assert fleet.compiles == {}
    assert {type(instance.error) for instance in fleet.instances} == {AcquireTimedOut}
