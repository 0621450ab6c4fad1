"""Contract tests of the stand-in: each observable sentence of the facts, as a test. Engines run in processes of
their own, since a process has one vLLM platform."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import sample_model


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the stand-in's entry point."""
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample model, at a place that may be written to."""
    return Path(shutil.copytree(sample_model.path(), tmp_path_factory.mktemp("model") / "sample"))
