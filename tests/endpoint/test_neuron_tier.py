"""The second tier: what a compile had finished when it was killed is not compiled again, on any machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.endpoint.neuron_fleet import ANSWER, NXDI, Fleet, answered
from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine
COMPILER = "0.0.0.0+standin"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Machines with a version of neuronx-cc installed: the stand-in's, by which its cache is named."""
    metadata = tmp_path / "site" / f"neuronx_cc-{COMPILER}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: neuronx-cc\nVersion: {COMPILER}\n")
    made = Fleet(tmp_path, NXDI, "tier")
    yield made
    made.close()


def count(what: str, served: ServeProcess) -> int:
    """The number at the end of a line of the log."""
    found = re.search(rf"{what}: (\d+)", served.log)
    assert found, served.log
    return int(found[1])


def test_a_compile_goes_on_from_what_a_killed_one_had_finished(fleet: Fleet, tmp_path: Path) -> None:
    work = {"BASE_COMPILE_WORK_DIR": str(tmp_path / "work")}
    killed = fleet.serve("a", **work, STAND_IN_FAULT="kill", STAND_IN_FAULT_AT="trace")
    assert killed.process.wait(120) != 0
    assert "artifact_published" not in killed.log
    assert "ended by SIGKILL" in killed.log
    finished = count("compiled graphs saved", killed)
    assert finished > 0
    # Both machines of this test have one host name, which is remembered for minutes. Another would try again at once.
    for name in fleet.stored("store/failures/"):
        fleet.client.delete_object(Bucket=fleet.bucket, Key=f"store/failures/{name}")

    served = fleet.serve("b", **work)
    try:
        served.wait_port()
        served.wait_ready(120)
        assert served.metric("endpoint_artifact_misses_total") == 1
        assert served.metric("endpoint_artifact_compile_seconds_total") > 0
    finally:
        assert answered(served) == ANSWER
    assert count("compiled graphs restored", served) == finished
    assert served.log.count("from the cache") == finished
    assert count("compiled graphs saved", served) > 0
    assert "artifact_published" in served.log
