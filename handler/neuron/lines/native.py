"""The native plugin on vLLM 0.24 and 0.21: `additional_config.neuron_config`, without NxD Inference.

Source: AWS Neuron documentation, vLLM Neuron, "Configuration options", "How to use vLLM Neuron features in your
deployment" and "Configure disaggregated inference with 1P1D and xPyD" (SDK 2.31, 2.32).
"""

from __future__ import annotations

from typing import Final

from handler.config.neuron_keys import native_key
from handler.json_value import Json
from handler.neuron.lines.feature import Feature
from handler.neuron.lines.line import ConfigKeys, Line
from handler.neuron.lines.nodes import known_role
from handler.neuron.lines.plan_draft import PlanDraft
from handler.neuron.lines.shared_spelling import (
    complete_degree,
    complete_length,
    complete_sequences,
    pin_grammar_backend,
    remove_legacy,
    spell_environment,
    spell_vllm,
)
from handler.neuron.lines.speculation import speculative_config
from handler.neuron.plan_request import conflict
from handler.neuron.sampling_limits import KEY as SAMPLING

FEATURES: Final = frozenset(
    {
        Feature.TENSOR_PARALLEL,
        Feature.LNC,
        Feature.CONTINUOUS_BATCHING,
        Feature.BUCKETING,
        Feature.CONTEXT_BUCKETS,
        Feature.TOKEN_BUCKETS,
        Feature.PREFIX_CACHING,
        Feature.BLOCKS,
        Feature.FP8,
        Feature.MXFP,
        Feature.KV_CACHE_QUANT,
        Feature.ON_DEVICE_SAMPLING,
        Feature.CPU_SAMPLING,
        Feature.EAGLE3,
        Feature.ASYNC_MODE,
        Feature.MULTIMODAL,
        Feature.DISAGGREGATION,
        Feature.RAW,
    }
)
# Any configuration switches on-device sampling on. This one uses the parameters of each request.
PER_REQUEST: Final[dict[str, Json]] = {"all_greedy": False}
ROLES: Final = {"prefill": "kv_producer", "decode": "kv_consumer"}
COPIED: Final = ("enable_prefix_caching", "block_size", "num_gpu_blocks_override")


def spell(draft: PlanDraft) -> None:
    """Writes the engine arguments of the native plugin."""
    spell_vllm(draft)
    remove_legacy(draft)
    pin_grammar_backend(draft)
    spell_environment(draft)
    complete_length(draft)
    complete_sequences(draft)
    complete_degree(draft)
    config = draft.config
    for name in COPIED:
        value = getattr(config, name)
        if value is not None:
            draft.args[name] = value
    if config.kv_cache_quant:
        draft.args["kv_cache_dtype"] = "fp8"
    _spell_keys(draft)
    _spell_speculation(draft)
    _spell_disaggregation(draft)
    if config.async_mode is not None:
        draft.args["async_scheduling"] = config.async_mode
    _check_sampling(draft)
    if draft.override:
        draft.additional["neuron_config"] = dict(draft.override)
    if config.vision_neuron_config is not None:
        draft.additional["vision_neuron_config"] = dict(config.vision_neuron_config)
    if draft.additional:
        draft.args["additional_config"] = dict(draft.additional)


def _spell_keys(draft: PlanDraft) -> None:
    config = draft.config
    keys: dict[str, tuple[str, Json]] = {}
    for name in ("context_encoding_buckets", "token_generation_buckets"):
        buckets = getattr(config, name)
        if buckets is not None:
            keys[native_key(name)] = (name, list(buckets))
    if config.enable_bucketing is False:
        tokens = draft.args.get("max_num_batched_tokens") or draft.args.get("max_model_len")
        draft.args["max_num_batched_tokens"] = tokens
        keys.setdefault(native_key("context_encoding_buckets"), ("enable_bucketing", [tokens]))
        keys["num_seqs_buckets"] = ("enable_bucketing", [draft.args.get("max_num_seqs")])
    if config.on_device_sampling is not None:
        keys[native_key("on_device_sampling")] = (
            "on_device_sampling",
            dict(PER_REQUEST) if config.on_device_sampling else None,
        )
    quantization = (config.quantization or "").lower()
    if quantization.startswith("mx"):
        keys[native_key("quantization")] = ("quantization", quantization)
    elif quantization:
        why = "the native plugin reads FP8 from the checkpoint's own quantization_config, not from a setting"
        draft.inform(
            "quantization-from-checkpoint", draft.request.setting("quantization"), why, "Use an FP8 checkpoint."
        )
    if config.text_neuron_config is not None:
        for name, value in config.text_neuron_config.items():
            keys[name] = ("text_neuron_config", value)
    for key, (setting, value) in keys.items():
        raw = draft.raw.get(key, value)
        if raw != value and not (key == SAMPLING and isinstance(raw, dict) and value is not None):
            draft.findings.append(conflict(draft.request.key(key), raw, draft.request.setting(setting), value))
        draft.override[key] = value
    draft.override.update(draft.raw)


def _spell_speculation(draft: PlanDraft) -> None:
    speculative = speculative_config(draft)
    if speculative is None:
        return
    draft.args["speculative_config"] = speculative
    if SAMPLING not in draft.override:
        draft.override[SAMPLING] = dict(PER_REQUEST)
        why = "EAGLE3 verifies its tokens on the device, so the plan switches on-device sampling on"
        draft.inform("completed", SAMPLING, why, "Set on_device_sampling to choose yourself.")


def _spell_disaggregation(draft: PlanDraft) -> None:
    role = known_role(draft)
    if role is None:
        return
    given = draft.args.get("kv_transfer_config")
    transfer: dict[str, Json] = {
        "kv_connector": "NeuronNixlConnector",
        "kv_role": ROLES[role],
        "kv_buffer_device": "cuda",
        "kv_connector_extra_config": {"backends": ["LIBFABRIC"]},
    }
    draft.args["kv_transfer_config"] = {**transfer, **(given if isinstance(given, dict) else {})}


def _check_sampling(draft: PlanDraft) -> None:
    """Async scheduling and speculation need on-device sampling, which is off by default on this line."""
    if draft.override.get(SAMPLING) is not None:
        return
    for name, needed in (("async_mode", draft.config.async_mode), ("speculation", "speculative_config" in draft.args)):
        if needed:
            why = "it needs on-device sampling, and the native plugin samples on the CPU by default"
            draft.error("needs-on-device-sampling", draft.request.setting(name), why, "Set on_device_sampling to true.")


NATIVE_024 = Line("native-0.24", FEATURES, ConfigKeys.NATIVE, ("trn2", "trn3"), (2, 32), spell)
NATIVE_021 = Line("native-0.21", FEATURES, ConfigKeys.NATIVE, ("trn2", "trn3"), (2, 31), spell)
