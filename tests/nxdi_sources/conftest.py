"""NXDI_SOURCES names a directory with checkouts of NxD Inference, NxD and the plugin: docs/on-neuron.md."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "recipes"))
sys.path.insert(1, str(Path(__file__).parents[1] / "model_packaging"))
sys.path.insert(1, str(Path(__file__).parents[1] / "handler" / "neuron"))
sys.path.insert(1, str(Path(__file__).parents[1] / "handler" / "neuron" / "neuron_config"))

from sources import CHECKOUTS, use_sources

HERE = Path(__file__).parent
SOURCES = os.environ.get("NXDI_SOURCES", "")


def pytest_configure(config: pytest.Config) -> None:
    if SOURCES:
        use_sources(SOURCES)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [checkout for checkout in CHECKOUTS if not Path(SOURCES, checkout).is_dir()]
    reason = f"NXDI_SOURCES has no {', '.join(missing)}" if SOURCES else "NXDI_SOURCES is not set: docs/on-neuron.md"
    for item in items:
        if item.path.parent == HERE and (missing or not SOURCES):
            item.add_marker(pytest.mark.skip(reason=reason))
