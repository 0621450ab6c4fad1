"""Writes a LoRA adapter of zeros, with which requests without an adapter get the model's own answer.

The NxDI plugin asks every request of an engine with LoRA for its adapter, and its engine ends at one without
(plugin 0.5.0, worker/neuronx_distributed_model_runner.py:1492).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from handler.storage.safetensors_header import PREFIX, BrokenFile, file_range, read_header

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"


def write_zero_adapter(source: Path, target: Path) -> bool:
    """Writes a copy of an adapter whose weights are zero. False if the adapter has no valid safetensors file."""
    weights = source / WEIGHTS
    try:
        read_header(file_range(weights), weights.stat().st_size)
    except (OSError, BrokenFile):
        return False
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / CONFIG, target / CONFIG)
    with weights.open("rb") as given, (target / WEIGHTS).open("wb") as zeros:
        prefix = given.read(PREFIX)
        zeros.write(prefix + given.read(int.from_bytes(prefix, "little")))
        zeros.truncate(weights.stat().st_size)
    return True
