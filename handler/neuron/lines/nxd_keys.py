"""Writes NeuronConfig keys of NxD Inference: those of the fields, then the raw configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from handler.config.field_metadata import KeyWriter
from handler.config.fields import field_of_key, keys_written_by
from handler.json_value import Json
from handler.neuron.lines.plan_draft import PlanDraft

INT8: Final = ("int8", "s8")
FP8: Final = ("fp8", "f8e4m3")
# The KV cache in FP8. Since SDK 2.28 `kv_cache_quant` alone changes only compiler flags (NxDI 0.10,
# modules/kvcache/kv_cache_manager.py:145, models/model_wrapper.py:153).
KV_IN_FP8: Final[dict[str, Json]] = {"direct_cast": True}
FP8_VARIABLES: Final = ("XLA_HANDLE_SPECIAL_SCALAR", "UNSAFE_FP8FNCAST")
# Sampling by each request's parameters, as in the plugin's default. Any configuration replaces that default.
PER_REQUEST: Final[dict[str, Json]] = {"dynamic": True, "deterministic": False}
# Fused weights, and one image.
QWEN2_VISION: Final[dict[str, Json]] = {"fused_qkv": True, "buckets": [1]}
# vllm-project/vllm-neuron, vllm_neuron/worker/constants.py, and the models added in 2.28 (release notes of NxDI).
MULTIMODAL: Final = (
    "MllamaForConditionalGeneration",
    "LlavaForConditionalGeneration",
    "Llama4ForConditionalGeneration",
    "Qwen2VLForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
)


def is_multimodal(draft: PlanDraft) -> bool:
    config = draft.config
    if config.text_neuron_config is not None or config.vision_neuron_config is not None:
        return True
    if draft.line.startswith("fork"):  # its example for mllama has a flat override (neuron_multimodal.py)
        return False
    return draft.facts is not None and any(name in MULTIMODAL for name in draft.facts.architectures)


def spell_neuron_config(draft: PlanDraft) -> None:
    """Fills `draft.override`. It is an error if a field and a raw key give the same key two values."""
    fields = _from_fields(draft)
    if is_multimodal(draft):
        _spell_multimodal(draft, fields)
    else:
        draft.override.update(_overlay(draft, fields))


def _from_fields(draft: PlanDraft) -> dict[str, Json]:
    config = draft.config
    keys: dict[str, Json] = {}
    for key, field in keys_written_by(KeyWriter.PLAN).items():
        value = getattr(config, field)
        if value is not None:
            keys[key] = list(value) if isinstance(value, tuple) else value
    if config.quantization is not None:
        _quantization(draft, keys, config.quantization.lower())
        _explain_quantization(draft)
    if keys.get("kv_cache_quant") and draft.line.startswith("nxdi"):
        keys["kv_quant_config"] = dict(KV_IN_FP8)
    if config.on_device_sampling is False:
        keys["on_device_sampling_config"] = None
    elif config.global_topk is not None:
        keys["on_device_sampling_config"] = {**PER_REQUEST, "global_topk": config.global_topk}
    return keys


def _quantization(draft: PlanDraft, keys: dict[str, Json], quantization: str) -> None:
    """Always writes type and data type: without them the plugin uses per-tensor INT8."""
    if quantization in INT8:
        keys.update(quantized=True, quantization_dtype="int8")
        keys.setdefault("quantization_type", "per_tensor_symmetric")
    elif quantization in FP8:
        keys.update(quantized=True, quantization_dtype="f8e4m3")
        keys.setdefault("quantization_type", "per_channel_symmetric")
    else:
        why = f"NxD Inference does not have vLLM's quantization '{quantization[:40]}'; it quantizes by NeuronConfig"
        fix = "Use int8 or fp8 with quantized_checkpoints_path, or remove it."
        draft.error("vllm-quantization", "quantization", why, fix)


def _explain_quantization(draft: PlanDraft) -> None:
    """Guide "vLLM User Guide for NxD Inference", Quantization: do not set vLLM's own setting to `neuron_quant`."""
    setting = draft.config.setting("quantization")
    if setting == "SM_VLLM_QUANTIZATION":
        why = "vLLM's quantization stays unset, as NxD Inference wants it; the plan writes NeuronConfig's keys instead"
        draft.inform("quantization-by-neuron-config", setting, why, "Nothing to do.")


def _overlay(draft: PlanDraft, fields: dict[str, Json]) -> dict[str, Json]:
    merged = dict(fields)
    for key, value in draft.raw.items():
        own = fields.get(key)
        if key == "on_device_sampling_config" and isinstance(value, dict) and isinstance(own, dict):
            merged[key] = {**own, **value}
            if value.get("global_topk", own["global_topk"]) != own["global_topk"]:
                _clash(draft, f"{key}.global_topk", value["global_topk"], "global_topk", own["global_topk"])
            continue
        if key in fields and own != value and not _filled(draft, key):
            _clash(draft, key, value, field_of_key().get(key, key), own)
        merged[key] = value
    return merged


def _filled(draft: PlanDraft, key: str) -> bool:
    """Whether `_from_fields` filled in the key itself. A raw key may then replace it without a finding."""
    return key == "kv_quant_config" or (key == "quantization_type" and draft.config.quantization_type is None)


def _clash(draft: PlanDraft, key: str, value: Json, field: str, field_value: Json) -> None:
    outer, dot, inner = key.partition(".")
    draft.conflict(f"{draft.config.raw_key(outer)}{dot}{inner}", value, field, field_value)


def _spell_multimodal(draft: PlanDraft, fields: dict[str, Json]) -> None:
    """Writes the override of a multimodal model: only two configurations. Fields go into the text model's."""
    for key in draft.raw:
        why = "the override of a multimodal model may hold only text_neuron_config and vision_neuron_config"
        draft.error("multimodal-override", draft.config.raw_key(key), why, "Move it into text_neuron_config.")
    text, vision = dict(draft.config.text_neuron_config or {}), dict(draft.config.vision_neuron_config or {})
    for name, value in fields.items():
        if name in text and text[name] != value:
            _clash(draft, f"text_neuron_config.{name}", text[name], field_of_key().get(name, name), value)
    if fields:
        names = ", ".join(sorted(fields))
        why = f"for a multimodal model the plan puts {names} into text_neuron_config"
        draft.inform("completed", "text_neuron_config", why, "Set text_neuron_config to choose yourself.")
    _complete_vision_length(draft, vision)
    _complete_qwen2_vision(draft, vision)
    sections = {"text_neuron_config": {**fields, **text}, "vision_neuron_config": vision}
    draft.override.update({key: section for key, section in sections.items() if section})


def _complete_vision_length(draft: PlanDraft, vision: dict[str, Json]) -> None:
    """Sets the vision model's `max_context_length`, which the plugin sets to max_model_len.

    It may not be longer than seq_len (NxDI 0.10, models/config.py:139; plugin 0.5.0,
    worker/neuronx_distributed_model_loader.py:600).
    """
    length, inherited = vision.get("seq_len"), draft.number("max_model_len")
    if not isinstance(length, int) or inherited is None or length >= inherited or "max_context_length" in vision:
        return
    vision["max_context_length"] = length
    why = f"the vision model would inherit a max_context_length of {inherited}, which is above its seq_len of {length}"
    draft.inform("completed", "vision_neuron_config.max_context_length", why, "Set it to choose yourself.")


def _complete_qwen2_vision(draft: PlanDraft, vision: dict[str, Json]) -> None:
    """Sets what the class of Qwen2-VL asserts (NxDI 0.10, models/qwen2_vl/modeling_qwen2_vl.py:138). Its buckets are
    numbers of images, and the plugin's default is a length."""
    if draft.facts is None or draft.facts.architectures[:1] != ("Qwen2VLForConditionalGeneration",):
        return
    for key, value in QWEN2_VISION.items():
        if key not in vision:
            vision[key] = value
            why = f"Qwen2-VL does not start with the plugin's default of {key}; the plan sets {json.dumps(value)}"
            draft.inform("completed", f"vision_neuron_config.{key}", why, "Set it to choose yourself.")


def uses_fp8(keys: Mapping[str, Json]) -> bool:
    """Whether NeuronConfig keys put weights, activations or the KV cache into FP8."""
    text = keys.get("text_neuron_config")
    if isinstance(text, dict) and uses_fp8(text):
        return True
    weights = bool(keys.get("quantized")) and str(keys.get("quantization_dtype")) in ("f8e4m3", "f8e5m2")
    cache = keys.get("kv_cache_quant") or keys.get("kv_quant_config") is not None
    return weights or bool(cache) or bool(keys.get("quantized_mlp_kernel_enabled"))


def spell_fp8(draft: PlanDraft) -> None:
    """Sets the two variables that FP8 needs on NxD Inference. It is an error if one is set to anything but 1."""
    if not uses_fp8(draft.override):
        return
    for name in FP8_VARIABLES:
        value = draft.env.setdefault(name, "1")
        if value != "1":
            why = f"FP8 needs {name}=1; with {value[:20]!r} special values are compiled wrongly"
            draft.error("fp8-variable", name, why, "Set it to 1, or remove it.")
