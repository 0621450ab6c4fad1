"""NXDI_SOURCES names a directory with checkouts of NxD Inference, NxD and the plugin: docs/on-neuron.md.

Without it the tests run where these packages are installed, as on a Neuron machine.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path

import pytest

from tests.nxdi_sources.closed_packages import PLATFORM
from tests.nxdi_sources.sources import CHECKOUTS, use_sources

HERE = Path(__file__).parent
SOURCES = os.environ.get("NXDI_SOURCES", "")


@cache
def installed() -> bool:
    """On a Neuron machine the packages themselves are there, and nothing is replaced."""
    return all(importlib.util.find_spec(name) for name in ("neuronx_distributed_inference", "vllm_neuron"))


def pytest_configure(config: pytest.Config) -> None:
    if SOURCES:
        use_sources(SOURCES)
    elif installed():
        os.environ.setdefault("NEURON_PLATFORM_TARGET_OVERRIDE", PLATFORM)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [checkout for checkout in CHECKOUTS if not Path(SOURCES, checkout).is_dir()]
    reason = f"NXDI_SOURCES has no {', '.join(missing)}" if SOURCES else "NXDI_SOURCES is not set: docs/on-neuron.md"
    for item in items:
        if item.path.parent == HERE and (missing if SOURCES else not installed()):
            item.add_marker(pytest.mark.skip(reason=reason))
