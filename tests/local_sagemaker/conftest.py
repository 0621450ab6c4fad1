from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gateway_process import GatewayProcess
from local_service import QUICK, ROLE, Cloud, LocalService
from scripted_container import ScriptedContainer, echo


@pytest.fixture(scope="session")
def container_process() -> Iterator[ScriptedContainer]:
    container = ScriptedContainer()
    yield container
    container.close()


@pytest.fixture
def container(container_process: ScriptedContainer) -> ScriptedContainer:
    container_process.script = echo
    container_process.reads_bodies = True
    return container_process


@pytest.fixture(scope="session")
def gateway(container_process: ScriptedContainer) -> Iterator[GatewayProcess]:
    gateway = GatewayProcess(container_process.url)
    yield gateway
    gateway.stop()


@pytest.fixture(scope="session")
def strict_gateway(container_process: ScriptedContainer) -> Iterator[GatewayProcess]:
    """Limits low enough to be met in a test."""
    limits = ("--regular-seconds", "0.3", "--stream-seconds", "0.5", "--max-body-bytes", "1000")
    gateway = GatewayProcess(container_process.url, *limits)
    yield gateway
    gateway.stop()


@pytest.fixture(scope="session")
def local_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    """SageMaker and S3 on this machine, with a stub for the image ``stub`` and `serve` for any other."""
    service = LocalService(tmp_path_factory.mktemp("local"), *QUICK)
    yield service
    service.down()


@pytest.fixture(scope="session")
def cloud(local_service: LocalService) -> Cloud:
    return Cloud(local_service)


@pytest.fixture
def story_service(tmp_path: Path) -> Iterator[LocalService]:
    """With SageMaker's own times, but for how soon a dead process is noticed."""
    service = LocalService(tmp_path / "local", "--ping-every", "0.5")
    yield service
    service.down()


@pytest.fixture
def aws(story_service: LocalService, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user pastes; boto3 needs nothing else."""
    for name, value in story_service.exports.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def role() -> str:
    return ROLE


@pytest.fixture
def image() -> str:
    """In the cloud the image's URI in ECR; here any name that no stub has stands for `serve`."""
    return "123456789012.dkr.ecr.us-east-1.amazonaws.com/neuron-endpoint:latest"


@pytest.fixture
def bucket() -> str:
    return "story"


@pytest.fixture
def model_directory() -> Path:
    return Path(__file__).parents[2] / "sample_model" / "weights"


@pytest.fixture
def kill_an_instance(story_service: LocalService) -> Callable[[str], None]:
    """A crash, on request; the one thing that no API of SageMaker's does."""

    def kill(endpoint: str) -> None:
        os.kill(story_service.instances()[endpoint][0]["pid"], signal.SIGKILL)

    return kill
