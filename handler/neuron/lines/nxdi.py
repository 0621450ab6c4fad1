"""The NxDI plugin on vLLM 0.16 and 0.13: NeuronConfig in `additional_config.override_neuron_config`.

Sources: vllm-project/vllm-neuron (platform.py, worker/neuronx_distributed_model_loader.py); guide "vLLM User Guide for
NxD Inference"; AWS Neuron 2.29 release notes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from handler.config.dialects.vllm_names import MULTIMODAL_KEYS
from handler.neuron.engine_plan import text_keys
from handler.neuron.lines.blocks import spell_blocks, spell_prefix_caching
from handler.neuron.lines.line import ConfigKeys, Feature, Line
from handler.neuron.lines.lora import spell_lora_plugin
from handler.neuron.lines.nxd_keys import is_multimodal, spell_fp8, spell_neuron_config
from handler.neuron.lines.plan_draft import (
    DEFAULT_CHUNK,
    PlanDraft,
    agree,
    complete_shape,
    pin_grammar_backend,
    spell_vllm,
)
from handler.neuron.lines.speculation import speculative_config

SCHEDULER = "DISABLE_NEURON_CUSTOM_SCHEDULER"
SAMPLING_VARIABLE = "NEURON_ON_DEVICE_SAMPLING_DISABLED"
UNSUPPORTED: Final = frozenset(
    {
        Feature.MXFP,
        Feature.EAGLE3,
        Feature.MEDUSA,
        Feature.UNFUSED_SPECULATION,
        Feature.DISAGGREGATION,
        Feature.CONTEXT_PARALLEL,
        Feature.NODES,
    }
)
COMMON: Final = frozenset(Feature) - UNSUPPORTED


def spell(draft: PlanDraft) -> None:
    """Writes the engine arguments and the environment of vLLM 0.13 and 0.16 with the NxDI plugin."""
    spell_vllm(draft)
    pin_grammar_backend(draft)
    _translate_sampling_variable(draft)
    _spell_async_scheduling(draft)
    agree(draft, "max_model_len")
    agree(draft, "tensor_parallel_size")
    if draft.raw.get("chunked_prefill_config") is None:
        agree(draft, "max_num_seqs")
    complete_shape(draft)
    spell_neuron_config(draft)
    speculative = speculative_config(draft)
    if speculative is not None:
        draft.args["speculative_config"] = speculative
    if chunks(draft):
        _spell_chunked_prefill(draft)
    else:
        spell_prefix_caching(draft)
    spell_lora_plugin(draft)
    if is_multimodal(draft):
        _check_multimodal_override(draft)
    spell_fp8(draft)
    _complete_prompt_length(draft)
    if draft.override:
        draft.additional["override_neuron_config"] = dict(draft.override)
    if draft.additional:
        draft.args["additional_config"] = dict(draft.additional)


def _spell_async_scheduling(draft: PlanDraft) -> None:
    """Switches off vLLM's asynchronous scheduling, which is on by default since 0.16.

    With it a worker's error is followed by "sample_tokens() called without prior execute_model()", and that hides it
    (plugin 0.5.0, worker/neuronx_distributed_model_runner.py:212).
    """
    if draft.line == NXDI_016.name and draft.args.setdefault("async_scheduling", False):
        why = "with it the engine reports another error in place of the worker's own"
        draft.warn("async-scheduling", "async_scheduling", why, "Remove it.")


def _check_multimodal_override(draft: PlanDraft) -> None:
    """Other features write keys that the override of a multimodal model may not hold."""
    for key in draft.override:
        if key not in MULTIMODAL_KEYS:
            why = f"the override of a multimodal model may not hold {key}"
            draft.error("multimodal-override", key, why, "Remove the setting that needs it.")


def chunks(draft: PlanDraft) -> bool:
    """Whether chunked prefill is requested, in any of its three spellings."""
    variable = draft.config.neuron_env.get(SCHEDULER, "0").strip() not in ("", "0")
    return bool(draft.config.enable_chunked_prefill) or variable or draft.raw.get("chunked_prefill_config") is not None


def _spell_chunked_prefill(draft: PlanDraft) -> None:
    """Writes chunked prefill: vLLM's own scheduler, KV cache blocks, and NxD Inference's configuration."""
    draft.env[SCHEDULER] = "1"
    draft.args["enable_chunked_prefill"] = True
    draft.args["enable_prefix_caching"] = bool(draft.config.enable_prefix_caching)
    spell_blocks(draft)
    if draft.number("max_num_batched_tokens") is None:
        length = draft.number("max_model_len") or DEFAULT_CHUNK
        draft.complete("max_num_batched_tokens", min(DEFAULT_CHUNK, length), "chunked prefill needs a chunk size")
    if draft.override.get("chunked_prefill_config") is None:
        draft.override["chunked_prefill_config"] = {"max_num_seqs": draft.args.get("max_num_seqs")}
        why = "the plugin requires a chunked_prefill_config; the plan writes one with the number of sequences"
        draft.inform("completed", "chunked_prefill_config", why, "Set it in the raw NeuronConfig to choose yourself.")


def _translate_sampling_variable(draft: PlanDraft) -> None:
    """Replaces the variable, which fails with a TypeError in plugin 0.5.0, by a null `on_device_sampling_config`."""
    value = draft.env.pop(SAMPLING_VARIABLE, "0").strip()
    translated = (
        draft.config.on_device_sampling is False and draft.config.setting("on_device_sampling") == SAMPLING_VARIABLE
    )
    if value in ("", "0") and not translated:
        return
    why = f"{SAMPLING_VARIABLE}=1 raises a TypeError in plugin 0.5.0; the plan sets on_device_sampling_config to null"
    draft.warn("sampling-variable", SAMPLING_VARIABLE, why, "Set on_device_sampling to false and remove the variable.")
    if draft.config.on_device_sampling:
        draft.conflict(SAMPLING_VARIABLE, value, "on_device_sampling", True)
    draft.config = replace(draft.config, on_device_sampling=False)


def _complete_prompt_length(draft: PlanDraft) -> None:
    """Sets `additional_config.max_prompt_length` to max_context_length.

    On vLLM 0.13 the plugin then rejects a prompt that is too long. On 0.16 it cannot, because the module that it
    changes is gone (plugin 0.5.0, platform_overrides.py:72). Our own limit protects the engine (`length_limits`).
    """
    context, limit = text_keys(draft.override).get("max_context_length"), draft.additional.get("max_prompt_length")
    length = draft.number("max_model_len")
    if limit is None:
        if isinstance(context, int) and context != length:
            draft.additional["max_prompt_length"] = context
            why = f"a prompt above max_context_length ({context}) could end the engine; this endpoint rejects it"
            draft.inform(
                "completed", "additional_config.max_prompt_length", why, "Keep it equal to max_context_length."
            )
    elif limit != (context if context is not None else length):
        expected = context if context is not None else length
        why = f"max_prompt_length is {str(limit)[:20]}, but NeuronConfig's max_context_length is {expected}"
        fix = f"Set max_prompt_length to {expected}, or remove it."
        draft.error("max-prompt-length", "additional_config.max_prompt_length", why, fix)


NXDI_016 = Line(
    "nxdi-0.16", COMMON - {Feature.CHUNKED_PREFILL}, ConfigKeys.NXDI, ("inf2", "trn1", "trn2", "trn3"), (2, 31), spell
)
# vLLM 0.13 has no draft-model speculation, and LoRA is confirmed for plugin 0.5 only.
NXDI_013 = Line(
    "nxdi-0.13",
    COMMON - {Feature.DRAFT_MODEL, Feature.LORA},
    ConfigKeys.NXDI,
    ("inf2", "trn1", "trn2"),
    (2, 28),
    spell,
    served=False,
)
