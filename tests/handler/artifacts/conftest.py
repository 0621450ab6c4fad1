"""What the tests of artifacts share. The helpers beside this file are importable from every folder below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from handler.artifacts.store.artifact_store import ArtifactStore
from handler.storage.object_store import ObjectStore
from tests.handler.artifacts.artifact_files import write_artifacts
from tests.handler.artifacts.manual_time import ManualTime


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


@pytest.fixture
def store(objects: ObjectStore) -> ArtifactStore:
    return ArtifactStore(objects)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """As NxDI leaves it."""
    return write_artifacts(tmp_path / "artifacts")
