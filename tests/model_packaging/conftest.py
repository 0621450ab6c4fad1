from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.small_model import write_small_model

NUMBERS = itertools.count()


@pytest.fixture
def bucket(s3: Any) -> str:
    """An empty bucket of this test's own."""
    name = f"packages-{next(NUMBERS)}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model."""
    return write_small_model(tmp_path / "model")
