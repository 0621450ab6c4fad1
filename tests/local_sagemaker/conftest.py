from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.local_sagemaker.gateway_process import GatewayProcess
from tests.local_sagemaker.local_service import QUICK, Cloud, LocalService
from tests.local_sagemaker.scripted_container import ScriptedContainer, echo


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
