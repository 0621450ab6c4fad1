"""Checks the draft model of a speculation against its target.

Sources: guide "Deploying Llama3.1 405B (Trn2)" (EAGLE v1 with a flat draft structure); guide "AWS Neuron" (LM head);
guide "Transformers NeuronX ... for Continuous Batching" (one model family, a smaller draft). NxD Inference builds the
draft with the target's model class (plugin 0.5.0, worker/neuronx_distributed_model_loader.py, FusedSpecNeuronConfig).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.neuron.checks.check_context import CheckContext, error, info, warning
from handler.neuron.checks.model_checks import from_hub

FLAGS: Final = ("enable_fused_speculation", "enable_eagle_speculation")
MODEL: Final = "speculative_model"


def flags_without_draft(context: CheckContext) -> Iterator[Finding]:
    """NeuronConfig keys of speculation, without a draft model."""
    flag = next((flag for flag in FLAGS if context.values.flag(flag)), None)
    setting = context.setting("fused_speculation") if context.config.fused_speculation else None
    setting = context.key(flag) if flag is not None else setting
    if context.nxd and setting is not None and context.config.speculative_model is None:
        fix = "Set speculative_model and num_speculative_tokens, or remove it."
        yield error("speculation-without-draft", setting, "speculation needs a draft model", fix)


def token_tree(context: CheckContext) -> Iterator[Finding]:
    if context.nxd and context.values.eagle and context.values.get("token_tree_config") is not None:
        why = "EAGLE works with a flat draft only through vLLM, not with a token tree"
        yield error("token-tree", context.key("token_tree_config"), why, "Remove it.")


def unlike_target(context: CheckContext) -> Iterator[Finding]:
    """A draft whose family, vocabulary or hidden size is not the target's, or that is larger."""
    draft, facts, setting = context.draft_model, context.facts, context.setting(MODEL)
    if draft is None or facts is None or not context.line.platforms:
        return
    if draft.model_type != facts.model_type and context.config.speculation != "eagle3":
        why = f"the draft is of type {draft.model_type[:40]}, the model of type {facts.model_type[:40]}"
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


def eagle_lm_head(context: CheckContext) -> Iterator[Finding]:
    """An EAGLE draft must hold the target's LM head, which published EAGLE checkpoints leave out."""
    draft, found = context.config.speculative_model, context.draft_model
    if not context.nxd or not context.values.eagle or draft is None or (found is not None and found.lm_head):
        return
    why = "NxD Inference needs the target's LM head in the checkpoint of the EAGLE draft"
    fix = "Copy lm_head.weight of the target into the draft's checkpoint, and use that copy."
    if found is not None and found.lm_head is False:
        yield error("eagle-lm-head", context.setting(MODEL), f"{why}, and this one has no lm_head.weight", fix)
    elif from_hub(draft):
        yield warning("eagle-lm-head", context.setting(MODEL), f"{why}, and drafts on the hub have none", fix)
    else:
        yield info("eagle-lm-head", context.setting(MODEL), why, fix)


def legacy_arguments(context: CheckContext) -> Iterator[Finding]:
    """Arguments that the fork's vLLM must have with speculation, as its examples give them."""
    extra, length = context.config.engine_args, context.draft.number("max_model_len")
    if context.config.speculative_model is None or not context.line.name.startswith("fork"):
        return
    given = extra.get("speculative_max_model_len")
    if given is not None and given != length:
        why = f"the draft's length is {given}, and must be max_model_len ({length})"
        yield error("draft-length", context.setting("speculative_max_model_len"), why, "Remove it.")
    if extra.get("use_v2_block_manager") is False:
        why = "speculation needs vLLM's second block manager on this line"
        yield error("block-manager", context.setting("use_v2_block_manager"), why, "Remove it.")


DRAFTS: Final = (flags_without_draft, token_tree, unlike_target, eagle_lm_head, legacy_arguments)
