"""Thousands of small fleets in which everything goes wrong, each from a seed; and bugs that they have to find.

`python -m tests.simulation --seed N` prints the events of one. FLEETS is their number here. On a loaded machine a test
run ends sooner, with fewer of them. `.ci/run` then runs all with the machine to itself.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.schedules.product_mutations import MUTATIONS, Mutation, simulated
from tests.simulation.schedules.schedule import Blow, Cause, Poison, Schedule
from tests.simulation.schedules.schedule_batches import Broken, broken, run_all

FLEETS = int(os.environ.get("FLEETS", "10000"))
SECONDS = 60.0
# The other mutations take longer: `python -m tests.simulation.schedules.product_mutations` runs all.
QUICK = (
    "lease_is_taken_without_a_condition",
    "restore_ignores_digests",
    "poisoned_entry_counts_for_ever",
    "killed_compile_is_an_error_of_the_configuration",
    "requests_of_a_dead_engine_are_not_taken_over",
)


def test_a_seed_gives_the_same_events_every_time() -> None:
    first: list[str] = []
    again: list[str] = []
    assert broken(7, first) is None
    assert broken(7, again) is None
    assert first == again
    assert len(first) > 50


def test_every_kind_of_fault_is_drawn() -> None:
    drawn = [Schedule.drawn(seed) for seed in range(300)]
    assert {cause for one in drawn for cause in one.causes} == set(Cause)
    assert {stroke.blow for one in drawn for stroke in one.strokes} == set(Blow)
    assert {poison for one in drawn for _, poison in one.poisons} == set(Poison)
    assert any(one.updates for one in drawn)


def test_no_rule_is_broken_in_any_fleet() -> None:
    done = 0
    wrong: list[Broken] = []
    for count, found in run_all(range(FLEETS), processes=2, seconds=SECONDS):
        done, wrong = done + count, wrong + found
    print(f"{done} of {FLEETS} fleets")
    assert wrong == []
    assert done > 0


@pytest.mark.parametrize("mutation", [one for one in MUTATIONS if one.name in QUICK], ids=lambda one: one.name)
def test_a_bug_in_the_product_is_found(mutation: Mutation) -> None:
    assert mutation.found in simulated(mutation)
