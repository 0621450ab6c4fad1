"""What to run on a machine with Neuron devices: `make test-neuron`. docs/on-neuron.md says what each test proves.

Skipped elsewhere, with the reason. REHEARSE=1 runs the same tests over the stand-in instead, which proves the tests'
own steps and nothing about Neuron. NXDI_SOURCES=dir (`make test-nxdi`) runs them over the real plugin and NxD Inference
with a test double for the compiler and the device.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sample_model
from tests.endpoint.serve_process import ServeProcess

HERE = Path(__file__).parent
DEVICES = sorted(Path("/dev").glob("neuron[0-9]*"))
SOURCES = os.environ.get("NXDI_SOURCES", "")
REHEARSAL = os.environ.get("REHEARSE") == "1" or bool(SOURCES)
SKIP = "no Neuron device here (/dev/neuron*): run `make test-neuron` on an inf2, trn1 or trn2 instance"
START_SECONDS = 3600.0 if DEVICES else 240.0
LINE = "nxdi-0.16"
# The test double of the device has one core.
RANKS = 1 if SOURCES and not DEVICES else 2

Serve = Callable[..., ServeProcess]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(2 * START_SECONDS))
            if not DEVICES and not REHEARSAL:
                item.add_marker(pytest.mark.skip(reason=SKIP))


@pytest.fixture(scope="session")
def line(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What makes a start one on Neuron: nothing on a Neuron machine, and what stands for it in a rehearsal."""
    if DEVICES:
        return {}
    site, rehearsal = tmp_path_factory.mktemp("site"), {"ENDPOINT_LINE": LINE, "ENDPOINT_INSTANCE": "ml.inf2.xlarge"}
    if SOURCES:
        from tests.nxdi_sources.cpu_device import installed_sources

        return {**installed_sources(site, SOURCES), **rehearsal}
    from neuron_stand_in.installation import installed

    return {**installed(site), "NEURON_STAND_IN": "1", **rehearsal}


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
            "SAGEMAKER_BASE_DIR": str(directory),
            "ENDPOINT_SCRATCH": str(directory / "scratch"),
            "ENDPOINT_ARTIFACT_STORE": f"file://{place / 'store'}",
            "ENDPOINT_ARTIFACT_LEASE": "5",
            "ENDPOINT_ENGINE_RESTARTS": "0",
            "SM_VLLM_MAX_NUM_SEQS": "4",
            "SM_VLLM_TENSOR_PARALLEL_SIZE": str(RANKS),
            **line,
            **environment,
        }
        made.append(ServeProcess(directory, settings))
        return made[-1]

    yield start
    for served in made:
        if served.process.poll() is None:
            served.terminate()
