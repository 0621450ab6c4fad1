"""The files of a LoRA adapter that the engine gets: a checked copy of the user's, or zeros."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from handler.engine.adapters.adapter_errors import InvalidAdapter
from handler.errors import SettingError
from handler.neuron.checkpoint.adapter_files import CONFIG, WEIGHTS, AdapterProblem, check_adapter
from handler.neuron.checkpoint.checkpoint_files import SAFETENSORS, LocalFiles, holds_weights
from handler.regular_files import open_regular
from handler.storage.safetensors_header import file_range, read_header

# Modules that PEFT's adapters usually change. Every model that supports LoRA in vLLM has one of them.
MODULES = ("q_proj", "o_proj", "down_proj", "qkv_proj", "query_key_value", "c_attn", "dense", "fc1", "out_proj")


def copy_checked(
    name: str, source: Path, target: Path, max_rank: int, modules: Mapping[str, tuple[int, ...]] | None = None
) -> None:
    """Checks the adapter in `source` and copies its files to `target`.

    vLLM reads an adapter's files again, in the middle of a step, whenever the adapter has left memory. If a file is
    gone by then, the engine ends with all its requests (vllm/lora/worker_manager.py, LRUCacheWorkerLoRAManager). So the
    engine gets a copy that nobody else deletes.

    :param modules: the model's modules with the shapes of their weights, if they are known.
    :raises InvalidAdapter: a file is missing, or vLLM cannot serve the adapter with this model.
    """
    try:
        check_adapter(LocalFiles(source, str(source)), max_rank, modules)
    except AdapterProblem as problem:
        raise InvalidAdapter(name, str(problem)) from None
    except SettingError as error:
        raise InvalidAdapter(name, error.problem) from None
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    try:
        for file in (CONFIG, WEIGHTS):
            with open_regular(source / file, source) as original, (target / file).open("wb") as copy:
                shutil.copyfileobj(original, copy, 1 << 20)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise InvalidAdapter(name, f"it cannot be copied ({error.strerror})") from None


def write_empty_adapter(model: Path, target: Path) -> bool:
    """Writes an adapter of zeros for a model, for requests without an adapter. False: the model has none of MODULES.

    vLLM 0.16 marks a token without an adapter by the slot -1. Its CPU kernels read that as the last slot
    (vllm/lora/ops/torch_ops/lora_ops.py, `lora_b_weights[lora_indices_tensor]`). If an adapter is in that slot, a
    request without an adapter gets the adapter's answer. Seen with this project's own tests. A request with the adapter
    of zeros uses a slot of its own, so its answer is that of the model.
    """
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
