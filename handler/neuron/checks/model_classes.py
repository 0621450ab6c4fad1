"""Checks that a line has a class for the model, and what of its config.json that class does not read.

Sources: NxD Inference, utils/constants.py and models/, and the loaders of plugin 0.5.0 and vLLM 0.9.1; vllm-neuron
0.24.0.1.1.0, vllm_neuron/model/registry.py and model/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from handler.config.finding import Finding
from handler.json_value import Json, mapping
from handler.neuron.checkpoint.model_facts import ModelFacts, text_part
from handler.neuron.checks.check_context import (
    LINE_OF_MODEL,
    CheckContext,
    Rejected,
    error,
    rejected,
    unsupported_model,
    warning,
)
from handler.neuron.lines.fork import FORK_091
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.lines.nxdi import NXDI_016

FORK_ARCHITECTURES: Final = (
    *("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "DbrxForCausalLM"),
    "MllamaForConditionalGeneration",
)
# Model types that NxD Inference of SDK 2.26 does not have (its commit e07f056, utils/constants.py).
AFTER_FORK: Final = ("gpt_oss", "gemma3", "qwen2_vl", "qwen3_vl")
ARCHITECTURES: Final = (
    *("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "DbrxForCausalLM", "Gemma3ForCausalLM"),
    *("Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "GptOssForCausalLM"),
    *("LlavaForConditionalGeneration", "Llama4ForConditionalGeneration"),
    *("Qwen2VLForConditionalGeneration", "Qwen3VLForConditionalGeneration"),
)
MODEL_TYPES: Final = (
    "gpt_oss",
    "llama",
    "llama4",
    "llava",
    "mllama",
    "mistral",
    "mixtral",
    "pixtral",
    "dbrx",
    "qwen2",
    "qwen2_vl",
    "qwen3",
    "qwen3_moe",
    "gemma3",
    "qwen3_vl",
)
# What models/gemma3/modeling_gemma3.py:130 writes over the values of config.json.
GEMMA3_SHAPE: Final = (262208, 8.0)
# Classes that divide the width by the heads (models/mistral/modeling_mistral.py:95, and the same of the others).
DIVIDED: Final = ("MistralForCausalLM", "MixtralForCausalLM", "Qwen2ForCausalLM")
# Classes that do not scale rotary embeddings.
UNSCALED: Final = (*DIVIDED, "Qwen3ForCausalLM", "Qwen3MoeForCausalLM")
# Overrides with an effect in vLLM alone.
READ_BY_VLLM: Final = {"architectures", "quantization_config", "bos_token_id", "eos_token_id", "pad_token_id"}
RUNNERS: Final[Rejected] = {"runner": ((None, "auto", "generate"), "NxD Inference generates only")}
NATIVE_ARCHITECTURES: Final = (
    "LlamaForCausalLM",
    "GptOssForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3VLForConditionalGeneration",
    "Eagle3LlamaForCausalLM",
)
# Model -> the scaled rotary embeddings that it has, and whether it fails at another (plugin, model/llama3/model.py) or
# ignores it (model/qwen3/model.py).
ROTARY: Final = {"LlamaForCausalLM": (("llama3",), True), "Qwen3ForCausalLM": ((), False)}


def model_type(context: CheckContext) -> Iterator[Finding]:
    """Models that NxD Inference does not support."""
    if not context.nxd or context.facts is None:
        return
    kind, names = context.facts.model_type.removesuffix("_text"), context.architectures
    if kind == "mllama" and context.plugin:
        why = "Llama 3.2 Vision (mllama) runs on the legacy fork only"
        yield unsupported_model(context, why, "Use another model, or the fork (ENDPOINT_LINE=fork-0.9.1).")
    elif kind not in MODEL_TYPES:
        why = f"NxD Inference does not support models of type '{kind[:40]}'"
        yield unsupported_model(context, why, f"Supported: {', '.join(MODEL_TYPES)}.")
    elif names and context.plugin:
        yield from _on_plugin(context, context.facts, names[0])
    elif names and context.line.name == FORK_091.name and not set(names) & set(FORK_ARCHITECTURES):
        yield _not_on_fork(context, kind, names[0])


def _on_plugin(context: CheckContext, facts: ModelFacts, name: str) -> Iterator[Finding]:
    """The plugin's loader finds its class by the first architecture (plugin 0.5.0, _get_model_configs and
    _get_neuron_model_cls)."""
    tower = mapping(facts.config.get("vision_config")).get("model_type") if facts.config else "pixtral"
    size = facts.hidden_size // facts.heads if facts.heads else facts.head_dim
    if name == "Gemma3ForConditionalGeneration":
        why = "the plugin does not find num_key_value_heads in the configuration of a Gemma 3 with images"
        yield unsupported_model(context, why, "Use another model, or a text-only checkpoint (Gemma3ForCausalLM).")
    elif name == "LlavaForConditionalGeneration" and tower != "pixtral":
        # models/pixtral/modeling_pixtral.py:111 requires vision_config.rope_theta.
        why = "of the Llava models, NxD Inference has those with Pixtral's vision model only"
        yield unsupported_model(context, why, "Use a model whose vision_config is of type pixtral.")
    elif name.lower() not in {each.lower() for each in ARCHITECTURES}:
        why = f"the plugin has no class for the architecture '{name[:60]}'"
        yield unsupported_model(context, why, f"Supported: {', '.join(ARCHITECTURES)}.")
    elif name == "Gemma3ForCausalLM" and facts.config and _gemma3_shape(facts.config) != GEMMA3_SHAPE:
        vocabulary, factor = GEMMA3_SHAPE
        why = f"NxD Inference builds each Gemma 3 for a vocabulary of {vocabulary} and a rotary scaling by {factor:g}"
        yield unsupported_model(context, why, "Use another model. Those of 4B parameters and more have both.")
    elif name == "Qwen3VLForConditionalGeneration" and facts.rotary_type not in ("default", "mrope"):
        # models/qwen3_vl/modeling_qwen3_vl_text.py:68
        why = f"NxD Inference has Qwen3-VL without rope_scaling, and config.json has '{facts.rotary_type[:20]}'"
        yield unsupported_model(context, why, "Remove rope_scaling's type from config.json, or use another model.")
    elif name in DIVIDED and size != facts.head_dim:
        why = f"NxD Inference builds heads of hidden_size / num_attention_heads ({size}), not of head_dim"
        fix = f"Use another model{' or ENDPOINT_LINE=fork-0.9.1' if name == 'MistralForCausalLM' else ''}."
        yield unsupported_model(context, f"{why} ({facts.head_dim}): the weights do not fit", fix)


def _gemma3_shape(config: Mapping[str, Json]) -> tuple[Json, Json]:
    text = text_part(config)
    return text.get("vocab_size", GEMMA3_SHAPE[0]), mapping(text.get("rope_scaling")).get("factor")


def rotary_scaling(context: CheckContext) -> Iterator[Finding]:
    """NxD Inference does not scale rotary embeddings in these classes, and reads no `hf_overrides` in any (NxDI,
    utils/hf_adapter.py, load_pretrained_config)."""
    rope = mapping(text_part(context.facts.config).get("rope_scaling")) if context.facts else {}
    kind = context.facts.rotary_type if context.facts else "default"
    if context.plugin and context.architectures[:1] and context.architectures[0] in UNSCALED and kind != "default":
        why = f"NxD Inference ignores the rope_scaling '{kind[:20]}' of config.json for {context.architectures[0]}"
        length = rope.get("original_max_position_embeddings")
        beyond = f" beyond {length} tokens" if kind == "yarn" and length else ""
        yield warning("rope-ignored", "model", f"{why}: answers may be wrong{beyond}", "Use another model or line.")
    unread = sorted(mapping(context.draft.args.get("hf_overrides")).keys() - READ_BY_VLLM)
    if context.nxd and unread:
        why = f"only vLLM reads {', '.join(unread)[:100]}: NxD Inference builds the model from config.json itself"
        yield warning("hf-overrides-unread", "hf_overrides", why, "Write the values into config.json.")


def _not_on_fork(context: CheckContext, kind: str, name: str) -> Finding:
    """vLLM 0.9.1, model_loader/neuronx_distributed.py, _get_model_architecture. AWS's fork has more classes: those of
    NxD Inference at the time."""
    why = f"the loader of vLLM 0.9.1 has no class for the architecture '{name[:60]}'"
    if kind in AFTER_FORK or name not in ARCHITECTURES:
        fix = f"Supported: {', '.join(FORK_ARCHITECTURES)}. Line {NXDI_016.name} has more (ENDPOINT_LINE)."
        return unsupported_model(context, why, fix)
    fix = f"Set ENDPOINT_LINE to {NXDI_016.name}, unless the image holds a fork with the model."
    return warning("unsupported-model", "model", f"{why}; a later version of AWS's fork may have one", fix)


def runner(context: CheckContext) -> Iterator[Finding]:
    """The plugin's worker samples tokens, and has no classes that return anything else (NxDI, utils/constants.py)."""
    if context.plugin:
        yield from rejected(context, "not-on-nxdi", RUNNERS)


def native_architecture(context: CheckContext) -> Iterator[Finding]:
    """The native plugin has its own implementation of each model."""
    if context.line.keys is not ConfigKeys.NATIVE:
        return
    named = context.facts.architectures if context.facts else ()
    known = (*NATIVE_ARCHITECTURES, *(model for model, line in LINE_OF_MODEL.items() if line == context.line.name))
    if named and not set(named) & set(known):
        why = f"{context.line.name} has no model {named[0][:60]}; it has {', '.join(known)}"
        fix = "Set ENDPOINT_LINE to nxdi-0.16, which has the model." if _on_nxdi(context) else "Use another model."
        yield unsupported_model(context, why, fix)


def _on_nxdi(context: CheckContext) -> bool:
    kind = context.facts.model_type.removesuffix("_text") if context.facts else ""
    return kind in MODEL_TYPES and kind != "mllama"  # the legacy fork only


def native_rotary_scaling(context: CheckContext) -> Iterator[Finding]:
    """The scaled rotary embeddings of longer contexts, of which the native plugin's models have few."""
    facts = context.facts
    known = next((ROTARY[name] for name in facts.architectures if name in ROTARY), None) if facts else None
    if facts is None or known is None or context.line.keys is not ConfigKeys.NATIVE:
        return
    (kinds, fails), kind = known, facts.rotary_type
    if kind in ("default", *kinds):
        return
    setting = "hf_overrides" if "hf_overrides" in context.draft.args else "model"
    if fails:
        why = f"the plugin's {facts.architectures[0][:60]} has no rotary embedding of type {kind[:40]}, and fails at it"
        yield error("rotary-embedding", setting, why, "Use another model, or another line.")
    else:
        why = f"the plugin's {facts.architectures[0][:60]} ignores the rotary embedding's type {kind[:40]}"
        fix = "Remove it, and set max_model_len to what the model was trained for: answers are wrong beyond it."
        yield warning("rotary-embedding", setting, why, fix)


MODEL_CLASSES: Final = (model_type, rotary_scaling, runner, native_architecture, native_rotary_scaling)
