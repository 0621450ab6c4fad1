"""OnDeviceSamplingConfig: what it has, and what it drops without a word (NxDI, models/config.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEFAULTS: Mapping[str, Any] = {
    "do_sample": False,
    "top_k": 1,
    "top_p": 1.0,
    "temperature": 1.0,
    "dynamic": False,
    "deterministic": False,
    "global_topk": 256,
    "on_device_sampling_config": True,
    "top_k_kernel_enabled": True,
    "sampling_dp_degree": 1,
}


def sampling_config(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """None for sampling on the CPU. Unknown keys vanish."""
    if given is None:
        return None
    return {key: given.get(key, default) for key, default in DEFAULTS.items()}
