"""NXDI_SOURCES names a directory with checkouts of NxD Inference, NxD and the plugin: docs/on-neuron.md."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

SOURCES = os.environ.get("NXDI_SOURCES", "")
CHECKOUTS = ("neuronx-distributed-inference/src", "neuronx-distributed/src", "vllm-neuron")
HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("recipes", "model_packaging"))]
    if SOURCES:
        from closed_packages import stand_in_for_closed_packages

        sys.path[:0] = [str(Path(SOURCES, checkout)) for checkout in CHECKOUTS]
        stand_in_for_closed_packages()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [checkout for checkout in CHECKOUTS if not Path(SOURCES, checkout).is_dir()]
    reason = f"NXDI_SOURCES has no {', '.join(missing)}" if SOURCES else "NXDI_SOURCES is not set: docs/on-neuron.md"
    for item in items:
        if item.path.parent == HERE and (missing or not SOURCES):
            item.add_marker(pytest.mark.skip(reason=reason))
