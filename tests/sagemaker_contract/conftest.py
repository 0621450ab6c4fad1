"""The tools of the tests of the container and of the local SageMaker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "handler"))
sys.path.append(str(Path(__file__).parents[1] / "container"))
sys.path.append(str(Path(__file__).parents[1] / "local_sagemaker"))

from local_service import QUICK, Cloud, LocalService
from loops import end_loop
from scripted_engine import ScriptedEngine


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
