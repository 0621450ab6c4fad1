"""From engine arguments and `additional_config` to NeuronConfig's keyword arguments, and the block counts' check.

Source: vllm-project/vllm-neuron, worker/neuronx_distributed_model_loader.py.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

from neuron_stand_in.engine_shape import EngineShape

logger = logging.getLogger("neuron_stand_in")

KEY = "override_neuron_config"
MULTIMODAL_KEYS = frozenset({"text_neuron_config", "vision_neuron_config"})
MULTIMODAL = frozenset({"LlavaForConditionalGeneration", "Llama4ForConditionalGeneration"})


def neuron_arguments(shape: EngineShape, additional_config: Mapping[str, Any]) -> dict[str, Any]:
    """NeuronConfig's keyword arguments.

    :raises AssertionError, ValueError, AttributeError, FileNotFoundError: what the plugin raises for them.
    """
    override = additional_config.get(KEY)
    logger.info("override_neuron_config: %s", override)
    if MULTIMODAL & set(shape.hf_config.get("architectures") or ()):
        check_multimodal(override or {})
    arguments = defaults(shape)
    if shape.lora:
        arguments["lora_config"] = lora_config(override)
    _lay_over(arguments, override or {})
    if arguments["is_block_kv_layout"]:
        _align_blocks(shape, arguments, override or {})
    _check(shape, arguments)
    longest = additional_config.get("max_prompt_length")
    if longest is not None and longest != arguments["max_context_length"]:
        raise ValueError(f"max_prompt_length ({longest}) must equal {arguments['max_context_length']=}")
    return arguments


def defaults(shape: EngineShape) -> dict[str, Any]:
    batch = 1 if shape.chunked_prefill else shape.max_num_seqs
    blocks = shape.num_gpu_blocks_override
    if blocks is None:  # rounded down, and checked against the same rounded up: see _check
        blocks = shape.max_model_len // shape.block_size * shape.max_num_seqs
    arguments = {
        "tp_degree": shape.tensor_parallel_size,
        "ctx_batch_size": 1,
        "batch_size": batch,
        "max_context_length": shape.max_num_batched_tokens if shape.chunked_prefill else shape.max_model_len,
        "seq_len": shape.max_model_len,
        "enable_bucketing": True,
        "is_continuous_batching": batch > 1,
        "quantized": False,
        "torch_dtype": shape.dtype,
        "padding_side": "right",
        "on_device_sampling_config": {"dynamic": True, "deterministic": False},
        "lora_config": None,
        "pa_num_blocks": blocks,
        "pa_block_size": shape.block_size,
        "is_block_kv_layout": shape.chunked_prefill or shape.prefix_caching,
        "is_prefix_caching": shape.prefix_caching,
    }
    if shape.speculation is not None:
        arguments["enable_fused_speculation"] = True
        arguments["speculation_length"] = shape.speculation["num_speculative_tokens"] or 0
        if shape.speculation["method"] == "eagle":
            arguments["enable_eagle_speculation"] = True
    return arguments


def _lay_over(arguments: dict[str, Any], override: Mapping[str, Any]) -> None:
    arguments.update({key: value for key, value in override.items() if key not in MULTIMODAL_KEYS})
    if "quantized" in override:
        arguments.setdefault("quantized_checkpoints_path", None)
        arguments.setdefault("quantization_type", "per_tensor_symmetric")
        arguments.setdefault("quantization_dtype", "int8")


def _align_blocks(shape: EngineShape, arguments: dict[str, Any], override: Mapping[str, Any]) -> None:
    if "pa_num_blocks" not in override:
        return
    if shape.num_gpu_blocks_override is None:
        raise ValueError("pa_num_blocks needs num_gpu_blocks_override, set to the same value")
    asked = shape.num_gpu_blocks_override - 1
    if override["pa_num_blocks"] != asked:
        raise ValueError(f"pa_num_blocks ({override['pa_num_blocks']}) must match num_gpu_blocks_override ({asked})")
    arguments["pa_num_blocks"] = shape.num_gpu_blocks_override


def _check(shape: EngineShape, arguments: Mapping[str, Any]) -> None:
    if shape.prefix_caching:
        assert arguments["is_prefix_caching"]
        assert arguments["is_block_kv_layout"]
    if shape.chunked_prefill:
        assert arguments.get("chunked_prefill_config")
        assert arguments["is_block_kv_layout"]
    asked = shape.num_gpu_blocks_override
    if arguments["is_block_kv_layout"]:
        needed = ceil(shape.max_model_len / shape.block_size) * shape.max_num_seqs
        available = arguments["pa_num_blocks"] if asked is None else asked - 1
    else:
        needed = shape.max_num_seqs
        available = needed if asked is None else asked - 1
    assert available >= needed, f"At least {needed} blocks are required, but only {available} blocks are available"


def check_multimodal(override: Mapping[str, Any]) -> None:
    """:raises AssertionError: a key beside text_neuron_config and vision_neuron_config."""
    assert override.keys() <= MULTIMODAL_KEYS, f"only {sorted(MULTIMODAL_KEYS)} may be set, got {sorted(override)}"


def lora_config(override: Mapping[str, Any] | None) -> dict[str, Any]:
    """:raises AttributeError: there is no override. :raises FileNotFoundError: an adapter is not on this machine.
    :raises KeyError: the file has no adapters for the device, or none for the host."""
    listing = override.get("lora_ckpt_json")  # type: ignore[union-attr]  # the real one fails the same way
    if listing:
        document = json.loads(Path(listing).read_text())
        base = Path(document.get("lora-ckpt-dir", "."))
        for name, path in {**document["lora-ckpt-paths"], **document["lora-ckpt-paths-cpu"]}.items():
            if not (base / path).exists():
                raise FileNotFoundError(f"adapter {name}: {base / path}")
    return {"lora_ckpt_json": listing, "target_modules": override.get("target_modules")}  # type: ignore[union-attr]
