"""Checks the draft model of a speculation against its target.

Sources: guide "Deploying Llama3.1 405B (Trn2)" (EAGLE v1 with a flat draft structure); guide "AWS Neuron" (LM head);
guide "Transformers NeuronX ... for Continuous Batching" (one model family, a smaller draft). vLLM 0.9.1 builds a draft
with the target's model class. Plugin 0.5 takes the class of the draft's own architecture, if there is one
(worker/neuronx_distributed_model_loader.py, _init_fused_spec_config).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.json_value import mapping
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.checks.check_context import CheckContext, error, info, warning
from handler.neuron.checks.model_checks import from_hub
from handler.neuron.checks.model_classes import ARCHITECTURES
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.lines.nxdi import NXDI_016
from handler.neuron.lines.plan_draft import speculative_keys

FLAGS: Final = ("enable_fused_speculation", "enable_eagle_speculation")
MODEL: Final = "speculative_model"
DEGREE: Final = "draft_tensor_parallel_size"
EAGLE_CLASSES: Final = ("LlamaForCausalLM", "Llama4ForConditionalGeneration", "GptOssForCausalLM")
EAGLE_PATHS: Final = ("eagle-", "eagle3-")
# The one EAGLE3 draft that the registry has, and its other name: the plugin writes "Eagle3" before a name (plugin,
# vllm/spec_decode/eagle.py).
EAGLE3: Final = "Eagle3LlamaForCausalLM"
EAGLE3_NAMES: Final = (EAGLE3, EAGLE3.removeprefix("Eagle3"))
# Method of a draft of the speculators library -> the start of the name that vLLM gives to it by its layers (vLLM 0.24
# and 0.29, transformers_utils/configs/speculators/algos.py).
SPECULATORS: Final = {"eagle3": "Eagle3", "peagle": "Peagle"}
# P-EAGLE, and the line that has it (AWS Neuron documentation, SDK 2.33, features guide).
PARALLEL_DRAFT, PARALLEL_LINE = "peagle", "native-0.29"


def flags_without_draft(context: CheckContext) -> Iterator[Finding]:
    """Keys of speculation without a draft model. The plugin asserts one (neuronx_distributed_model_loader.py)."""
    flag = next((flag for flag in FLAGS if context.values.flag(flag)), None)
    setting = "fused_speculation" if context.config.fused_speculation else None
    setting = context.key(flag) if flag is not None else setting
    alone = context.config.speculative_model is None
    alone = alone or (context.plugin and flag is not None and "speculative_config" not in context.draft.args)
    if context.nxd and setting is not None and alone:
        fix = "Set speculative_model and num_speculative_tokens, or remove it."
        yield error("speculation-without-draft", setting, "speculation needs a draft model", fix)


def token_tree(context: CheckContext) -> Iterator[Finding]:
    if context.nxd and context.values.eagle and context.values.get("token_tree_config") is not None:
        why = "EAGLE works with a flat draft only through vLLM, not with a token tree"
        yield error("token-tree", context.key("token_tree_config"), why, "Remove it.")


def unlike_target(context: CheckContext) -> Iterator[Finding]:
    """A draft whose family, vocabulary or hidden size is not the target's, or that is larger."""
    draft, facts, setting = context.draft_model, context.facts, MODEL
    if draft is None or facts is None or not context.line.platforms:
        return
    if draft.model_type != facts.model_type and context.config.speculation != "eagle3":
        why = f"the draft is of type {draft.model_type[:40]}, the model of type {facts.model_type[:40]}"
        if _own_class(context, draft, facts):
            why = f"{why}: NxD Inference builds each with its own class, and nobody has tried the two here"
            yield warning("draft-family", setting, why, "Try it before you rely on it.")
        else:
            yield error("draft-family", setting, why, "Use a draft of the same model family.")
    if draft.vocab_size and facts.vocab_size and draft.vocab_size != facts.vocab_size:
        why = f"the draft has a vocabulary of {draft.vocab_size} tokens, the model one of {facts.vocab_size}"
        yield error("draft-vocabulary", setting, why, "Use a draft of the same model family.")
    eagle = context.config.speculation in ("eagle", "eagle3")
    if eagle and draft.hidden_size and facts.hidden_size and draft.hidden_size != facts.hidden_size:
        why = f"an EAGLE draft reads the model's hidden states, of size {facts.hidden_size}, not {draft.hidden_size}"
        yield error("draft-hidden-size", setting, why, "Use an EAGLE draft that was trained for this model.")
    if (draft.weight_bytes or 0) > (facts.weight_bytes or draft.weight_bytes or 0):
        why = "the draft has more weights than the model, so speculation is slower than none"
        yield warning("draft-larger", setting, why, "Use a smaller draft, or exchange the two.")


def _own_class(context: CheckContext, draft: ModelFacts, target: ModelFacts) -> bool:
    """Whether the plugin would build a draft of another type. Both share one NeuronConfig, the target's: one without
    experts does not fit a draft with them."""
    plain = context.line.name == NXDI_016.name and not context.values.eagle
    known = draft.architectures[:1] and draft.architectures[0] in ARCHITECTURES
    return bool(plain and known and draft.vocab_size == target.vocab_size and (target.experts or not draft.experts))


def eagle_layer(context: CheckContext) -> Iterator[Finding]:
    """An EAGLE draft is built by the class of its own architecture, or else of the model's. Few classes have the layer
    that joins its two inputs (NxDI, `fc` in models/: llama, llama4 and gpt_oss)."""
    draft = context.draft_model
    if not context.plugin or not context.values.eagle or draft is None:
        return
    names = [name for name in (*draft.architectures[:1], *context.architectures[:1]) if name in ARCHITECTURES]
    if names and names[0] not in EAGLE_CLASSES:
        why = f"NxD Inference has no EAGLE draft of the architecture {names[0]}"
        yield error("draft-architecture", MODEL, why, "Use a draft model without EAGLE, or another model.")


def native_draft(context: CheckContext) -> Iterator[Finding]:
    """The native plugin has one EAGLE3 draft, and 0.29 has P-EAGLE too. It looks for it when the model is loaded."""
    draft = context.draft_model
    if draft is None or context.line.keys is not ConfigKeys.NATIVE or "speculative_config" not in context.draft.args:
        return
    named = _draft_names(draft)
    parallel = any(name.lower().startswith(PARALLEL_DRAFT) for name in named)
    if not named or set(named) & set(EAGLE3_NAMES) or (parallel and context.line.name == PARALLEL_LINE):
        return
    why = f"the plugin has no EAGLE3 draft {named[0][:60]}, and fails when the model has been loaded"
    if parallel:
        fix = f"Set ENDPOINT_LINE to {PARALLEL_LINE}, which has P-EAGLE, or use another draft."
    elif named != draft.architectures:
        fix = "Use a draft with Llama's layers."
    else:
        fix = f"If it is a Llama-style EAGLE3 draft, write {EAGLE3} into architectures of its config.json."
    yield error("draft-architecture", MODEL, why, fix)


def _draft_names(draft: ModelFacts) -> tuple[str, ...]:
    """The draft's architectures as vLLM reads them."""
    method = draft.config.get("speculators_model_type")
    if not isinstance(method, str) or method not in SPECULATORS:
        return draft.architectures
    layers = mapping(draft.config.get("transformer_layer_config")).get("model_type", "llama")
    return (f"{SPECULATORS[method]}{str(layers)[:40].capitalize()}ForCausalLM",)


def eagle_lm_head(context: CheckContext) -> Iterator[Finding]:
    """An EAGLE draft must hold the target's LM head, which published EAGLE checkpoints leave out."""
    draft, found = context.config.speculative_model, context.draft_model
    if not context.nxd or not context.values.eagle or draft is None or (found is not None and found.lm_head):
        return
    why = "NxD Inference needs the target's LM head in the checkpoint of the EAGLE draft"
    fix = "Copy lm_head.weight of the target into the draft's checkpoint, and use that copy."
    if found is not None and found.lm_head is False:
        yield error("eagle-lm-head", MODEL, f"{why}, and this one has no lm_head.weight", fix)
    elif from_hub(draft):
        yield warning("eagle-lm-head", MODEL, f"{why}, and drafts on the hub have none", fix)
    else:
        yield info("eagle-lm-head", MODEL, why, fix)


def length_on_fork(context: CheckContext) -> Iterator[Finding]:
    """The draft is compiled as long as the model. vLLM takes no other length, and none that the draft does not have."""
    length = context.draft.number("max_model_len")
    if context.config.speculative_model is None or length is None or not context.line.name.startswith("fork"):
        return
    trained = context.draft_model.longest if context.draft_model else None
    lengths = {
        "speculative_max_model_len": context.config.engine_args.get("speculative_max_model_len"),
        "speculative_config": speculative_keys(context.config).get("max_model_len"),
    }
    for argument, own in lengths.items():
        if own is not None and own != length:
            why = f"the draft's length is {own}, and must be max_model_len ({length})"
            yield error("draft-length", argument, why, "Remove it.")
        elif own is not None and trained is not None and trained < length:
            why = f"the draft was trained for {trained} tokens, and vLLM rejects the length {length} for it"
            yield error("draft-length", argument, why, "Remove it.")
    if trained is not None and trained < length:
        why = f"the draft was trained for {trained} tokens, and sequences may have {length} (max_model_len)"
        fix = f"Expect few accepted tokens after {trained}, use another draft, or lower max_model_len."
        yield warning("draft-shorter", MODEL, why, fix)


def legacy_block_manager(context: CheckContext) -> Iterator[Finding]:
    """The fork's examples switch on vLLM's second block manager with speculation."""
    fork = context.line.name.startswith("fork")
    if fork and context.config.speculative_model and context.config.engine_args.get("use_v2_block_manager") is False:
        why = "speculation needs vLLM's second block manager on this line"
        yield error("block-manager", "use_v2_block_manager", why, "Remove it.")


def on_transformers_neuronx(context: CheckContext) -> Iterator[Finding]:
    """What transformers-neuronx asserts of a draft (fused_speculation.py), and what vLLM's loader leaves out.

    vLLM 0.9.1 makes a model of its own class of a draft with `eagle-` in its path (config.py, SpeculativeConfig), which
    model_loader/neuron.py does not have. What is in S3 gets another path.
    """
    config, draft = context.config, context.config.speculative_model
    if draft is None or context.line.keys is not ConfigKeys.TRANSFORMERS_NEURONX:
        return
    remove = "or remove the draft model."
    if config.on_device_sampling is False:
        why = "speculation needs sampling on the device, and the settings choose CPU sampling"
        yield error("needs-on-device-sampling", "on_device_sampling", why, f"Set on_device_sampling to true, {remove}")
    if config.quantization is not None:
        why = "with a draft model the backend quantizes no weights, and would ignore it"
        yield error("draft-not-quantized", "quantization", why, f"Remove it, {remove}")
    degree, own = context.draft.number("tensor_parallel_size"), speculative_keys(config).get(DEGREE)
    if own is not None and own != degree:
        why = f"{DEGREE} is {str(own)[:20]}, and draft and model must have the same degree ({degree})"
        yield error("draft-degree", "speculative_config", why, f"Remove {DEGREE}.")
    if not draft.startswith("s3://") and any(mark in draft.lower() for mark in EAGLE_PATHS):
        why = "vLLM takes a path with 'eagle-' for an EAGLE draft of its own, and the backend does not start"
        yield error("draft-path", MODEL, why, "Give the draft by a path without 'eagle-' or 'eagle3-'.")


DRAFTS: Final = (
    flags_without_draft,
    token_tree,
    unlike_target,
    eagle_layer,
    native_draft,
    eagle_lm_head,
    length_on_fork,
    legacy_block_manager,
    on_transformers_neuronx,
)
