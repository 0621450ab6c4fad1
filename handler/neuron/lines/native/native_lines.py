"""The native plugin on vLLM 0.29, 0.24 and 0.21: `additional_config.neuron_config`, without NxD Inference.

Source: AWS Neuron documentation, vLLM Neuron, "Configuration options", "How to use vLLM Neuron features in your
deployment" and "Configure disaggregated inference with 1P1D and xPyD" (SDK 2.31 - 2.33); vllm-neuron 0.24.0.1.1.0,
vllm_neuron/vllm/platform.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from handler.config.fields import native_key
from handler.json_value import Json
from handler.neuron.engine_plan import TARGET, compiles_only
from handler.neuron.lines.blocks import NATIVE_BLOCK
from handler.neuron.lines.line import ConfigKeys, Feature, Line
from handler.neuron.lines.native.native_prefill import (
    DECODE_BUCKETS,
    PREFILL_BUCKETS,
    SEGMENTS,
    TOKENS,
    spell_prefill,
)
from handler.neuron.lines.native.native_sampling import spell_sampling
from handler.neuron.lines.nodes import spell_transfer
from handler.neuron.lines.plan_draft import PlanDraft, complete_shape, pin_grammar_backend, spell_vllm
from handler.neuron.lines.speculation import speculative_config

FEATURES: Final = frozenset(
    {
        Feature.TENSOR_PARALLEL,
        Feature.LNC,
        Feature.CONTINUOUS_BATCHING,
        Feature.BUCKETING,
        Feature.CONTEXT_BUCKETS,
        Feature.TOKEN_BUCKETS,
        Feature.PREFIX_CACHING,
        Feature.CHUNKED_PREFILL,
        Feature.BLOCKS,
        Feature.FP8,
        Feature.MXFP,
        Feature.UNQUANTIZED_MODULES,
        Feature.KV_CACHE_QUANT,
        Feature.ON_DEVICE_SAMPLING,
        Feature.CPU_SAMPLING,
        Feature.EAGLE3,
        Feature.ASYNC_MODE,
        Feature.MULTIMODAL,
        Feature.DISAGGREGATION,
        Feature.CONTEXT_PARALLEL,
        Feature.RAW,
    }
)
TRANSFER: Final[dict[str, Json]] = {
    "kv_connector": "NeuronNixlConnector",
    "kv_role": "",  # by the role of the endpoint
    "kv_buffer_device": "cuda",
    "kv_connector_extra_config": {"backends": ["LIBFABRIC"]},
}
TRANSFERS: Final = "kv_transfer_config"
NIXL: Final = ("NeuronNixlConnector", "NixlConnector")
BUFFER: Final = "kv_buffer_device"
# Interleave size of a KV cache over several ranks. The second is an older name.
INTERLEAVE, OLDER_INTERLEAVE = "cp_kv_cache_interleave_size", "dcp_kv_cache_interleave_size"
EXECUTOR: Final = "distributed_executor_backend"
EXECUTORS: Final = ("mp", "uni")
EAGER: Final = "enforce_eager"
SEQUENCE_BUCKETS: Final = "num_seqs_buckets"
QUANTIZATION: Final = native_key("quantization")
# What the plugin converts weights to, as it spells it. `bfloat16` is another spelling of the plain setting alone.
CONVERTED: Final = ("mxfp4", "mxfp8", "bf16")
# Model -> those that it has. The others fail (Qwen3), or are ignored (vllm-neuron 0.24.0.1.1.0, model/*/factory.py and
# model/llama3/quantization.py). Later lines have more (AWS Neuron documentation 2.33, "Qwen3-32B Model Recipe").
CONVERSIONS: Final = {
    "LlamaForCausalLM": ("bf16",),
    "GptOssForCausalLM": ("mxfp4", "bf16"),
    "Qwen3ForCausalLM": ("bf16",),
    "Qwen3VLForConditionalGeneration": ("mxfp8", "bf16"),
}
LATER_CONVERSIONS: Final = {"native-0.29": {"Qwen3ForCausalLM": ("mxfp8", "bf16")}}
UNQUANTIZED: Final = native_key("modules_to_not_convert")
# The multimodal section of `additional_config`, by line.
VISION_SECTIONS: Final = {"native-0.29": "encoder_neuron_config"}
VISION_SECTION: Final = "vision_neuron_config"
# The compile route, by line. It is the default, but the Precompile Cache of traces is on only where it is named (AWS
# Neuron documentation, "How to use the Precompile Cache").
BACKEND: Final = "VLLM_NEURON_BACKEND"
BACKENDS: Final = {"native-0.29": "neuron_native"}


def spell(draft: PlanDraft) -> None:
    """Writes the engine arguments of the native plugin."""
    spell_vllm(draft)
    pin_grammar_backend(draft)
    _complete_environment(draft)
    complete_shape(draft)
    config = draft.config
    draft.copy("block_size", "num_gpu_blocks_override")
    spell_prefill(draft)
    _leave_out_eager(draft)
    _spell_executor(draft)
    _spell_keys(draft)
    spell_sampling(draft)
    _spell_gpt_oss(draft)
    _spell_speculation(draft)
    spell_transfer(draft, TRANSFER)
    _spell_buffer(draft)
    _spell_interleave(draft)
    draft.additional["neuron_config"] = dict(draft.override)
    section = VISION_SECTIONS.get(draft.line, VISION_SECTION)
    if config.vision_neuron_config is not None:
        draft.additional[section] = dict(config.vision_neuron_config)
    draft.args["additional_config"] = dict(draft.additional)


def conversions(line: str | None, architectures: Sequence[str]) -> Sequence[str]:
    """What weights of a model can be converted to. All that there is for a model that is not known."""
    table = {**CONVERSIONS, **LATER_CONVERSIONS.get(line or "", {})}
    return next((table[name] for name in architectures if name in table), CONVERTED)


def _complete_environment(draft: PlanDraft) -> None:
    """Names the compile route, and the target of a compile without devices, which cannot be read from the hardware."""
    if draft.line in BACKENDS:
        draft.env.setdefault(BACKEND, BACKENDS[draft.line])
    if compiles_only(draft.env) and draft.instance is not None:
        draft.env.setdefault(TARGET, draft.instance.platform)


def _leave_out_eager(draft: PlanDraft) -> None:
    """The device has compiled graphs only: the plugin's worker asserts it. Its CPU mode has both."""
    if draft.args.get(EAGER) and draft.env.get("VLLM_NEURON_CPU_MODE", "0") in ("", "0"):
        del draft.args[EAGER]
        why = "the device runs compiled graphs only, and a start with it fails; the plan leaves it out"
        draft.warn("eager-left-out", EAGER, why, "Remove it.")


def _spell_executor(draft: PlanDraft) -> None:
    """One process for each rank. The plugin replaces every other executor."""
    executor: Json = draft.args.get(EXECUTOR)
    if executor is None and (draft.number("tensor_parallel_size") or 1) > 1:
        draft.args[EXECUTOR] = EXECUTORS[0]
    elif executor is not None and executor not in EXECUTORS:
        draft.args[EXECUTOR] = EXECUTORS[0]
        why = f"the plugin replaces the executor {str(executor)[:40]} with {EXECUTORS[0]}, and so does the plan"
        draft.warn("executor-replaced", EXECUTOR, why, f"Use {' or '.join(EXECUTORS)}.")


def _spell_keys(draft: PlanDraft) -> None:
    config = draft.config
    keys: dict[str, tuple[str, Json]] = {}
    if config.context_encoding_buckets is not None:
        keys[PREFILL_BUCKETS] = ("context_encoding_buckets", [*config.context_encoding_buckets])
    if config.token_generation_buckets is not None:
        keys[DECODE_BUCKETS] = ("token_generation_buckets", [*config.token_generation_buckets])
    if config.modules_to_not_convert is not None:
        keys[UNQUANTIZED] = ("modules_to_not_convert", [*config.modules_to_not_convert])
    if config.enable_bucketing is False:
        tokens, length = draft.number(TOKENS), draft.number("max_model_len")
        if tokens is not None and length is not None and SEGMENTS not in draft.raw:
            keys.setdefault(PREFILL_BUCKETS, ("enable_bucketing", [min(tokens, length)]))
        keys[SEQUENCE_BUCKETS] = ("enable_bucketing", [draft.args.get("max_num_seqs")])
    quantization = (config.quantization or "").lower().replace("bfloat", "bf")
    if quantization in CONVERTED:
        keys[QUANTIZATION] = ("quantization", quantization)
    elif quantization:
        code = "quantization-from-checkpoint"
        why = "the native plugin reads FP8 from the checkpoint's own quantization_config, not from a setting"
        if draft.facts is not None and not draft.facts.quantized:
            why += "; this checkpoint has none, and its weights are not quantized"
            draft.warn(code, "quantization", why, "Use an FP8 checkpoint, or remove it.")
        else:
            draft.inform(code, draft.config.setting("quantization"), why, "Use an FP8 checkpoint.")
    if config.text_neuron_config is not None:
        for name, value in config.text_neuron_config.items():
            keys[name] = ("text_neuron_config", value)
    for key, (setting, value) in keys.items():
        raw = draft.raw.get(key, value)
        if raw != value:
            draft.conflict(draft.config.raw_key(key), raw, setting, value)
        draft.override[key] = value
    # The plugin reads null as a value of a key of its own, on which it does not start.
    draft.override.update({key: value for key, value in draft.raw.items() if value is not None})


def _spell_gpt_oss(draft: PlanDraft) -> None:
    """Hides the checkpoint's MXFP4 from vLLM, whose own check rejects it before the plugin reads the weights."""
    facts = draft.facts
    if facts is None or "GptOssForCausalLM" not in facts.architectures or not facts.quantized:
        return
    overrides: Json = draft.args.get("hf_overrides")
    if overrides is None or (isinstance(overrides, dict) and "quantization_config" not in overrides):
        value: Json = {**(overrides or {}), "quantization_config": {}}
        draft.complete("hf_overrides", value, "vLLM rejects this checkpoint's own quantization on Neuron")
    if draft.override.get(QUANTIZATION) is None:
        draft.override[QUANTIZATION] = "bf16"
        why = "the weights are MXFP4, which runs on trn3 only; the plan has them converted to bfloat16"
        draft.inform("completed", QUANTIZATION, why, "On trn3, set quantization to mxfp4.")


def _spell_speculation(draft: PlanDraft) -> None:
    """EAGLE3, with sampling on the device or on the CPU.

    The target and the draft return logits if the device does not sample, and a sampler on the host verifies the tokens
    (vllm-neuron 0.24.0.1.1.0 and its main branch in October 2026: vllm/worker/neuron_model_runner.py, `_sample` and
    `_execute_model_forward`; vllm/spec_decode/eagle.py, EagleProposer; AWS Neuron documentation, "Speculative Decoding
    (EAGLE3) in the vLLM Neuron Framework", Rejection Sampling).
    """
    speculative = speculative_config(draft)
    if speculative is None:
        return
    draft.args["speculative_config"] = speculative
    if draft.config.logprobs:
        why = "a step that verifies a draft's tokens returns no log probabilities"
        draft.error("speculation-with-logprobs", "logprobs", why, "Remove it, or the draft model.")


def _spell_buffer(draft: PlanDraft) -> None:
    """Names the device that NIXL moves the cache between. vLLM's default is `neuron`, on which it does not start.

    Source: vllm-neuron 0.24.0.1.1.0, vllm/platform.py, get_nixl_supported_devices; vLLM 0.24 and 0.29,
    config/kv_transfer.py and kv_connector/v1/nixl/base_worker.py.
    """
    own = draft.nested(TRANSFERS)
    if own.get("kv_connector") in NIXL and own.get(BUFFER) is None:
        value: Json = {**own, BUFFER: TRANSFER[BUFFER]}
        draft.complete(TRANSFERS, value, f"NIXL needs a {BUFFER}, and the plugin calls its device cuda")


def _spell_interleave(draft: PlanDraft) -> None:
    """Sets the interleave size of a cache that is transferred to the block size. vLLM's default is 1.

    The plugin compares the two before vLLM asks it for its own block size, so that the plan names both (vllm-neuron
    0.24.0.1.1.0, vllm/worker/neuron_model_runner.py, __init__; vLLM 0.24 and 0.29, v1/executor/multiproc_executor.py).
    """
    if (draft.number("decode_context_parallel_size") or 1) < 2 or not draft.nested(TRANSFERS):
        return
    interleave = max(draft.number(name) or 1 for name in (INTERLEAVE, OLDER_INTERLEAVE))
    why = "with decode context parallelism and a connector, the interleave size must be the block size"
    if draft.args.get("block_size") is None:
        draft.complete("block_size", interleave if interleave > 1 else NATIVE_BLOCK, why)
    if draft.args.get(INTERLEAVE) is None:
        draft.complete(INTERLEAVE, draft.args["block_size"], why)


PLATFORMS: Final = ("trn2", "trn3")
NATIVE_029: Final = Line("native-0.29", FEATURES, ConfigKeys.NATIVE, PLATFORMS, (2, 33), spell)
NATIVE_024: Final = Line("native-0.24", FEATURES, ConfigKeys.NATIVE, PLATFORMS, (2, 32), spell)
NATIVE_021: Final = Line("native-0.21", FEATURES, ConfigKeys.NATIVE, PLATFORMS, (2, 31), spell, served=False)
