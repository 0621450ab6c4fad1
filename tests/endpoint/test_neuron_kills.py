"""The way of a start over the stand-in for the NxDI plugin, killed at each of its stages.

The tests run in the file's order. Each start takes up what the killed one before it has left, gets past the stage at
which that one died, and is killed at the next; at the end of each half one serves. SIGKILL goes to every process of
the start at once, while /ping says the stage and a request to S3 or the stand-in is held there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.endpoint.neuron_fleet import ANSWER, NXDI, QUESTION, Fleet, answered, failed

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("kills"), NXDI, "kills")
    yield made
    made.close()


def models(fleet: Fleet) -> list[Path]:
    """The models that machine a has whole: neither what is being fetched nor the marks of a boot."""
    return [path for path in (fleet.scratch("a") / "models").iterdir() if not path.name.startswith(".")]


def whole_artifacts(fleet: Fleet, machine: str) -> list[Path]:
    """The directories that an engine would load from, complete or not: names without a suffix."""
    return [path for path in (fleet.scratch(machine) / "artifacts").glob("*") if path.is_dir() and not path.suffix]


def test_killed_while_it_checks(fleet: Fleet) -> None:
    served = fleet.killed_at_request("a", "check configuration", "config.json")
    assert "fetch model" not in served.log
    assert not list(fleet.scratch("a").rglob("*"))


def test_killed_while_it_fetches_the_model(fleet: Fleet) -> None:
    fleet.killed_at_request("a", "fetch model", "model.safetensors")
    assert models(fleet) == []


def test_killed_half_way_through_the_compile(fleet: Fleet) -> None:
    served = fleet.killed_in_engine("a", "compile: start engine", "trace")
    assert "artifact_compile" in served.log
    assert len(models(fleet)) == 1, "what the last start left is gone"
    assert fleet.manifests() == []
    assert whole_artifacts(fleet, "a") == []


def test_killed_while_it_waits_for_the_lease_of_the_dead(fleet: Fleet) -> None:
    served = fleet.killed_at_request("b", "wait for another instance's artifacts", "/leases/")
    assert "compile: " not in served.log


def test_killed_between_the_two_manifests_of_a_publication(fleet: Fleet) -> None:
    served = fleet.killed_at_request("a", "publish artifacts", "PUT /kills/store/manifests/graph/")
    assert "artifact_lease_taken_over" in served.log
    assert fleet.manifests() == ["weights"]  # whole: its manifest came after its objects
    assert whole_artifacts(fleet, "a") == []


def test_the_next_start_compiles_publishes_and_serves(fleet: Fleet) -> None:
    served = fleet.serve("a")
    try:
        served.wait_port()
        served.wait_ready()
        honest = served.client.post("/invocations", json={**QUESTION, "repetition_penalty": 1.3})
        assert honest.status_code == 400
        assert honest.json()["error"]["param"] == "repetition_penalty"
        assert any("compile: start engine" in body for _, _, body in served.pings)
    finally:
        assert answered(served) == ANSWER
    assert fleet.manifests() == ["graph", "weights"]
    assert len(list((fleet.scratch("a") / "artifacts").glob("*.compiled-*"))) == 1, "the dead ones' are gone"


def test_killed_while_it_restores(fleet: Fleet) -> None:
    served = fleet.killed_at_request("c", "restore artifacts", "GET /kills/store/objects/")
    assert "artifact_restored" not in served.log
    assert whole_artifacts(fleet, "c") == []


def test_killed_while_it_warms_up(fleet: Fleet) -> None:
    served = fleet.killed_in_engine("c", "warm up", "step")
    assert "artifact_restored" in served.log
    assert len(whole_artifacts(fleet, "c")) == 1
    assert "ready. Try" not in served.log


def test_killed_while_it_serves(fleet: Fleet) -> None:
    served = fleet.serve("c")
    received = bytearray()

    def kill_at_the_first_token(reply: httpx.Response) -> None:
        for part in reply.iter_bytes():
            if not received:
                served.kill_all_processes()
            received.extend(part)

    try:
        served.wait_port()
        served.wait_ready()
        body = {"prompt": "a", "max_tokens": 900, "ignore_eos": True, "temperature": 0, "stream": True}
        with served.client.stream("POST", "/invocations", json=body) as reply, pytest.raises(httpx.TransportError):
            kill_at_the_first_token(reply)
    finally:
        served.kill_all()
    assert received
    assert b"[DONE]" not in received


def test_the_next_start_mends_what_the_disk_has_lost_and_serves_the_same_tokens(fleet: Fleet) -> None:
    before = fleet.stored()
    model = whole_artifacts(fleet, "c")[0] / "model.pt"
    whole = model.read_bytes()
    model.write_bytes(whole[: len(whole) // 2])
    served = fleet.serve("c")
    assert answered(served) == ANSWER
    assert "artifact_restored" in served.log
    assert "compile: " not in served.log
    assert model.read_bytes() == whole
    assert {name for name in fleet.stored() if "leases/" not in name} == {n for n in before if "leases/" not in n}


def test_artifacts_of_somebody_else_are_refused_when_truncated_and_served_when_whole(fleet: Fleet) -> None:
    """The plugin would load them without a look, and die of the truncated one."""
    given = whole_artifacts(fleet, "c")[0]
    truncated = fleet.directory / "truncated"
    truncated.mkdir()
    for file in given.iterdir():
        if file.is_file():
            (truncated / file.name).write_bytes(file.read_bytes()[: -100 if file.name == "model.pt" else None])
    reason = failed(fleet.serve("d", NEURON_COMPILED_ARTIFACTS=str(truncated)))
    assert "model.pt" in reason
    assert "NEURON_COMPILED_ARTIFACTS" in reason
    served = fleet.serve("d", NEURON_COMPILED_ARTIFACTS=str(given))
    assert answered(served) == ANSWER
    assert "Recompiling" not in served.log
