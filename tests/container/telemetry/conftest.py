from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.container.telemetry.log_lines import Lines


@pytest.fixture
def log() -> Iterator[Lines]:
    lines, root = Lines(), logging.getLogger()
    level = root.level
    root.addHandler(lines)
    root.setLevel(logging.INFO)
    yield lines
    root.removeHandler(lines)
    root.setLevel(level)
