"""The tools of the tests of the container and of the local SageMaker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.container.scripted_engine import ScriptedEngine
from tests.handler.loops import end_loop
from tests.local_sagemaker.local_service import QUICK, Cloud, LocalService


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    engine = ScriptedEngine()
    yield engine
    end_loop(engine.loop)


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """SageMaker on this machine, with a stub for the image `stub`."""
    service = LocalService(tmp_path_factory.mktemp("local"), *QUICK)
    yield Cloud(service)
    service.down()
