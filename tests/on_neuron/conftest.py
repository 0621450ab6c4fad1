"""What to run on a machine with Neuron devices: `make test-neuron`. docs/on-neuron.md says what each test proves.

Skipped elsewhere, with the reason. REHEARSE=1 runs the same tests over the stand-in instead, which proves the tests'
own steps and nothing about Neuron.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sample_model
from tests.endpoint.serve_process import ServeProcess

HERE = Path(__file__).parent
DEVICES = sorted(Path("/dev").glob("neuron[0-9]*"))
REHEARSAL = os.environ.get("REHEARSE") == "1"
SKIP = "no Neuron device here (/dev/neuron*): run `make test-neuron` on an inf2, trn1 or trn2 instance"
START_SECONDS = 3600.0 if DEVICES else 120.0

Serve = Callable[..., ServeProcess]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(2 * START_SECONDS))
            if not DEVICES and not REHEARSAL:
                item.add_marker(pytest.mark.skip(reason=SKIP))


@pytest.fixture(scope="session")
def line(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What makes a start one on Neuron: nothing on a Neuron machine, the stand-in in a rehearsal."""
    if DEVICES:
        return {}
    sys.path.insert(0, str(HERE.parent / "neuron_stand_in"))
    from neuron_stand_in.installation import installed

    rehearsal = {"NEURON_STAND_IN": "1", "ENDPOINT_LINE": "nxdi-0.16", "ENDPOINT_INSTANCE": "ml.inf2.xlarge"}
    return {**installed(tmp_path_factory.mktemp("site")), **rehearsal}


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("on-neuron")


@pytest.fixture(scope="session")
def serve(place: Path, line: dict[str, str]) -> Iterator[Serve]:
    """Starts `serve` on the sample model as a machine of its own, with one store for all."""
    made: list[ServeProcess] = []

    def start(machine: str, **environment: str) -> ServeProcess:
        directory = place / machine
        directory.mkdir(exist_ok=True)
        if not (directory / "model").exists():
            (directory / "model").symlink_to(sample_model.path())
        settings = {
            **line,
            "SAGEMAKER_BASE_DIR": str(directory),
            "ENDPOINT_SCRATCH": str(directory / "scratch"),
            "ENDPOINT_ARTIFACT_STORE": f"file://{place / 'store'}",
            "ENDPOINT_ARTIFACT_LEASE": "5",
            "ENDPOINT_ENGINE_RESTARTS": "0",
            "SM_VLLM_MAX_NUM_SEQS": "4",
            "SM_VLLM_TENSOR_PARALLEL_SIZE": "2",
            **environment,
        }
        made.append(ServeProcess(directory, settings))
        return made[-1]

    yield start
    for served in made:
        if served.process.poll() is None:
            served.terminate()
