from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.small_model import write_small_model

# The gateway and the scripted container behind it are local_sagemaker's own test tools.
sys.path.append(str(Path(__file__).parents[1] / "local_sagemaker"))
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
