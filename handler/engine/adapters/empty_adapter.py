"""Writes a LoRA adapter of zeros, for requests without an adapter on vLLM's CPU kernels.

vLLM 0.16 marks a token without an adapter by the slot -1. Its CPU kernels read that as the last slot
(vllm/lora/ops/torch_ops/lora_ops.py, `lora_b_weights[lora_indices_tensor]`). If an adapter is in that slot, a request
without an adapter gets the adapter's answer. Seen with this project's own tests. A request with the adapter of zeros
uses a slot of its own, so its answer is that of the model.
"""

from __future__ import annotations

import json
from pathlib import Path

from handler.neuron.checkpoint.adapter_files import CONFIG, WEIGHTS
from handler.neuron.checkpoint.checkpoint_files import SAFETENSORS, holds_weights
from handler.storage.safetensors_header import file_range, read_header

# Modules that PEFT's adapters usually change. Every model that supports LoRA in vLLM has one of them.
MODULES = ("q_proj", "o_proj", "down_proj", "qkv_proj", "query_key_value", "c_attn", "dense", "fc1", "out_proj")


def write_empty_adapter(model: Path, target: Path) -> bool:
    """Writes the adapter for the model in `model`. False if the model has none of MODULES."""
    import torch
    from safetensors.torch import save_file

    module = _module(model)
    if module is None:
        return False
    name, (outputs, inputs) = module
    shapes = {f"{name}.lora_A.weight": (1, inputs), f"{name}.lora_B.weight": (outputs, 1)}
    target.mkdir(parents=True, exist_ok=True)
    tensors = {f"base_model.model.{key}": torch.zeros(shape, dtype=torch.bfloat16) for key, shape in shapes.items()}
    save_file(tensors, target / WEIGHTS)
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "bias": "none", "target_modules": [name.rpartition(".")[2]]}
    (target / CONFIG).write_text(json.dumps(config))
    return True


def _module(model: Path) -> tuple[str, tuple[int, ...]] | None:
    """The name and shape (outputs by inputs) of the first linear layer that adapters usually change."""
    for file in sorted(file for file in model.iterdir() if holds_weights(file.name, SAFETENSORS)):
        for key, tensor in sorted(read_header(file_range(file)).items()):
            name, _, last = key.rpartition(".")
            if last == "weight" and name.rpartition(".")[2] in MODULES and len(tensor.shape) == 2:
                return name, tensor.shape
    return None
