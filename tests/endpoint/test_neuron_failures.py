"""A compile or a load over the stand-in for the NxDI plugin that fails: state, message, exit status, what is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.endpoint.neuron_fleet import NXDI, Fleet, failed

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("failures"), NXDI, "failures")
    yield made
    made.close()


def fails(fleet: Fleet, store: str, fault: str, at: str) -> str:
    """The reason of the start. It is kept in the store, and nothing is published."""
    reason = failed(fleet.serve(store, store, STAND_IN_FAULT=fault, STAND_IN_FAULT_AT=at))
    left = {name.split("/")[0] for name in fleet.stored(f"{store}/")}
    assert "failures" in left
    assert not left & {"manifests", "objects"}
    return reason


@pytest.mark.parametrize(
    ("at", "says", "fix"),
    [
        ("trace", "[F137] neuronx-cc was forcibly killed", "more host memory"),
        ("load", "Failed to allocate device memory", "Raise tensor_parallel_size"),
    ],
)
def test_memory_that_is_not_enough_is_said_with_the_fix(fleet: Fleet, at: str, says: str, fix: str) -> None:
    reason = fails(fleet, f"store-{at}", "oom", at)
    assert says in reason
    assert fix in reason


def test_a_compile_that_fails_says_why_and_is_not_tried_by_another_instance(fleet: Fleet) -> None:
    says = "Failed compilation with neuronx-cc: exit status 70"
    reason = fails(fleet, "store", "exception", "trace")
    assert says in reason
    assert "the compiler's version" in reason
    assert "See root cause above" not in reason
    another = failed(fleet.serve("another-machine", "store"))
    assert "failed to compile" in another
    assert says in another
    assert "delete s3://failures/" in another


def test_a_compile_that_is_killed_is_no_fault_of_the_configuration(fleet: Fleet) -> None:
    """It is remembered as a kill, so that the next start tries again; test_neuron_kills has such next starts."""
    reason = failed(fleet.serve("killed", "killed", STAND_IN_FAULT="kill"))
    assert "SIGKILL" in reason
    assert "run out of memory" in reason
    assert "another one at once" in reason
    assert not {name.split("/")[0] for name in fleet.stored("killed/")} & {"manifests", "objects"}
