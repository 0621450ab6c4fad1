"""The plain settings as NeuronConfig keys of NxD Inference, with the raw configuration laid over them."""

from __future__ import annotations

from typing import Final

from handler.config.neuron_keys import copied_keys, field_of_key
from handler.json_value import Json
from handler.neuron.lines.plan_draft import PlanDraft
from handler.neuron.plan_request import conflict

INT8: Final = ("int8", "s8")
FP8: Final = ("fp8", "f8e4m3")
# Sampling per request, as the plugin's own default has it; giving a configuration of its own replaces that default.
PER_REQUEST: Final[dict[str, Json]] = {"dynamic": True, "deterministic": False}
MULTIMODAL_KEYS: Final = ("text_neuron_config", "vision_neuron_config")
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
    if any(key in draft.raw for key in MULTIMODAL_KEYS):
        return True
    return draft.facts is not None and any(name in MULTIMODAL for name in draft.facts.architectures)


def spell_neuron_config(draft: PlanDraft) -> None:
    """Fills `draft.override`. The same key given plainly and raw with two values is an error naming both."""
    plain = _plain(draft)
    raw = {key: value for key, value in draft.raw.items() if key not in MULTIMODAL_KEYS}
    if is_multimodal(draft):
        _spell_multimodal(draft, plain, raw)
    else:
        draft.override.update(_overlay(draft, plain, raw))


def _plain(draft: PlanDraft) -> dict[str, Json]:
    config = draft.config
    keys: dict[str, Json] = {}
    for key, field in copied_keys().items():
        value = getattr(config, field)
        if value is not None:
            keys[key] = list(value) if isinstance(value, tuple) else value
    if config.quantization is not None:
        _quantization(draft, keys, config.quantization.lower())
    if config.on_device_sampling is False:
        keys["on_device_sampling_config"] = None
    elif config.global_topk is not None:
        keys["on_device_sampling_config"] = {**PER_REQUEST, "global_topk": config.global_topk}
    return keys


def _quantization(draft: PlanDraft, keys: dict[str, Json], quantization: str) -> None:
    """Type and data type are always spelled: left out beside `quantized`, the plugin takes per-tensor INT8."""
    if quantization in INT8:
        keys.update(quantized=True, quantization_dtype="int8")
        keys.setdefault("quantization_type", "per_tensor_symmetric")
    elif quantization in FP8:
        keys.update(quantized=True, quantization_dtype="f8e4m3")
        keys.setdefault("quantization_type", "per_channel_symmetric")
    else:
        why = f"vLLM's quantization '{quantization[:40]}' is refused: NxD Inference quantizes by NeuronConfig"
        fix = "Use int8 or fp8, with quantized_checkpoints_path, or leave it out."
        draft.error("vllm-quantization", draft.request.setting("quantization"), why, fix)


def _overlay(draft: PlanDraft, plain: dict[str, Json], raw: dict[str, Json]) -> dict[str, Json]:
    merged = dict(plain)
    for key, value in raw.items():
        given = plain.get(key)
        if key == "on_device_sampling_config" and isinstance(value, dict) and isinstance(given, dict):
            merged[key] = {**given, **value}
            if value.get("global_topk", given["global_topk"]) != given["global_topk"]:
                _clash(draft, f"{key}.global_topk", value["global_topk"], "global_topk", given["global_topk"])
            continue
        if key in plain and given != value and not _filled(draft, key):
            _clash(draft, key, value, field_of_key().get(key, key), given)
        merged[key] = value
    return merged


def _filled(draft: PlanDraft, key: str) -> bool:
    """A key that `_plain` filled in by itself may be overruled without a word."""
    return key == "quantization_type" and draft.config.quantization_type is None


def _clash(draft: PlanDraft, key: str, value: Json, name: str, given: Json) -> None:
    inner = key.rpartition(".")
    setting = f"{draft.request.key(inner[0])}.{inner[2]}" if inner[0] else draft.request.key(key)
    draft.findings.append(conflict(setting, value, draft.request.setting(name), given))


def _spell_multimodal(draft: PlanDraft, plain: dict[str, Json], raw: dict[str, Json]) -> None:
    """The override of a multimodal model may hold the two configurations and nothing else: what was asked for
    plainly goes into the text model's."""
    for key in raw:
        why = "for a multimodal model the override may hold text_neuron_config and vision_neuron_config only"
        draft.error("multimodal-override", draft.request.key(key), why, "Move it into text_neuron_config.")
    sections = {}
    for key, asked in zip(
        MULTIMODAL_KEYS, (draft.config.text_neuron_config, draft.config.vision_neuron_config), strict=True
    ):
        section = dict(asked or {})
        inner = draft.raw.get(key)
        if isinstance(inner, dict):
            for name, value in inner.items():
                if name in section and section[name] != value:
                    _clash(draft, f"{key}.{name}", value, key, section[name])
            section.update(inner)
        sections[key] = section
    text = sections["text_neuron_config"]
    for name, value in plain.items():
        if name in text and text[name] != value:
            _clash(draft, f"text_neuron_config.{name}", text[name], field_of_key().get(name, name), value)
    if plain:
        names = ", ".join(sorted(plain))
        why = f"for a multimodal model {names} belong to the text model; the plan puts them into text_neuron_config"
        draft.inform("completed", "text_neuron_config", why, "Set text_neuron_config to choose yourself.")
    sections["text_neuron_config"] = {**plain, **text}
    draft.override.update({key: section for key, section in sections.items() if section})
