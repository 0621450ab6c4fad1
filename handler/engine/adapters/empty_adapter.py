"""Writes a LoRA adapter of zeros, for requests without an adapter on vLLM's CPU kernels.

vLLM 0.16 marks a token without an adapter by the slot -1. Its CPU kernels read that as the last slot
(vllm/lora/ops/torch_ops/lora_ops.py, `lora_b_weights[lora_indices_tensor]`). If an adapter is in that slot, a request
without an adapter gets the adapter's answer. Seen with this project's own tests. A request with the adapter of zeros
uses a slot of its own, so its answer is that of the model.
"""

from __future__ import annotations

import json
from pathlib import Path

from handler.engine.adapters.adapter_checkpoint import CONFIG, WEIGHTS

# Modules that PEFT's adapters usually change. Every model that supports LoRA in vLLM has one of them.
MODULES = ("q_proj", "o_proj", "down_proj", "qkv_proj", "query_key_value", "c_attn", "dense", "fc1", "out_proj")
BYTES = 2  # of a bfloat16


def write_empty_adapter(model: Path, target: Path) -> bool:
    """Writes the adapter for the model in `model`. False if the model has none of MODULES."""
    found = _module(model)
    if found is None:
        return False
    name, (outputs, inputs) = found
    tensors = {f"{name}.lora_A.weight": (1, inputs), f"{name}.lora_B.weight": (outputs, 1)}
    header: dict[str, object] = {}
    end = 0
    for tensor, (rows, columns) in tensors.items():
        start, end = end, end + rows * columns * BYTES
        header[f"base_model.model.{tensor}"] = {
            "dtype": "BF16",
            "shape": [rows, columns],
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    target.mkdir(parents=True, exist_ok=True)
    (target / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "bias": "none", "target_modules": [name.rpartition(".")[2]]}
    (target / CONFIG).write_text(json.dumps(config))
    return True


def _module(model: Path) -> tuple[str, tuple[int, int]] | None:
    """The name and shape (outputs by inputs) of the first linear layer that adapters usually change."""
    for file in sorted(model.glob("*.safetensors")):
        with file.open("rb") as opened:
            header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        for tensor, entry in sorted(header.items()):
            name, _, last = tensor.rpartition(".")
            shape = entry.get("shape", ())
            if last == "weight" and name.rpartition(".")[2] in MODULES and len(shape) == 2:
                return name, (int(shape[0]), int(shape[1]))
    return None
