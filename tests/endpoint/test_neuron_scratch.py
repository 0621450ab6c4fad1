"""The default start over the stand-in for the NxDI plugin: no store, no directory for artifacts, a read-only model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

import sample_model
from tests.endpoint.neuron_fleet import ANSWER, NXDI, Fleet, answered

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("scratch"), NXDI, "scratch")
    yield made
    made.close()


def test_it_compiles_into_scratch_and_a_restart_loads(fleet: Fleet) -> None:
    model = fleet.directory / "model"
    shutil.copytree(sample_model.path(), model)
    model.chmod(0o555)
    first = fleet.serve("machine", "", ENDPOINT_MODEL=str(model))
    assert answered(first) == ANSWER
    assert "Finished building model" in first.log
    assert "ENDPOINT_ARTIFACT_STORE would keep them" in first.log
    assert not (model / "neuron-compiled-artifacts").exists()

    second = fleet.serve("machine", "", ENDPOINT_MODEL=str(model))
    assert answered(second) == ANSWER
    assert "Loaded model artifacts" in second.log
    assert "Finished building model" not in second.log
