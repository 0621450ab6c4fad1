"""A compile or a load over the stand-in for the NxDI plugin that fails: state, message, exit status, what is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from neuron_fleet import NXDI, Fleet, failed

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("failures"), NXDI, "failures")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("fault", "at", "says", "fix"),
    [
        ("exception", "trace", "Failed compilation with neuronx-cc: exit status 70", "the compiler's version"),
        ("exit", "model", "ended with status 70 and printed no reason", "the compiler's version"),
        ("oom", "trace", "[F137] neuronx-cc was forcibly killed", "more host memory"),
        ("oom", "load", "Failed to allocate device memory", "Raise tensor_parallel_size"),
    ],
)
def test_a_compile_that_fails_says_why_and_is_not_tried_again(
    fleet: Fleet, fault: str, at: str, says: str, fix: str
) -> None:
    store = f"store-{fault}-{at}"
    reason = failed(fleet.serve(store, store, STAND_IN_FAULT=fault, STAND_IN_FAULT_AT=at))
    assert says in reason
    assert fix in reason
    assert "See root cause above" not in reason
    left = {name.split("/")[0] for name in fleet.stored(f"{store}/")}
    assert "failures" in left
    assert not left & {"manifests", "objects"}, "nothing was published"

    another = failed(fleet.serve(f"{store}-another-machine", store))
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


def test_without_a_store_a_load_that_fails_says_why_as_well(fleet: Fleet) -> None:
    reason = failed(fleet.serve("bare", "", STAND_IN_FAULT="oom", STAND_IN_FAULT_AT="load"))
    assert "Failed to allocate device memory" in reason
    assert "Raise tensor_parallel_size" in reason
