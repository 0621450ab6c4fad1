"""Builds `speculative_config`, which vLLM has since 0.9."""

from __future__ import annotations

from typing import Final

from handler.json_value import Json
from handler.neuron.lines.feature import METHODS
from handler.neuron.lines.plan_draft import PlanDraft

DRAFT_METHODS: Final = ("draft_model", "eagle", "eagle3")


def method_of(draft: PlanDraft) -> str | None:
    """The configured method. A draft without a method is a plain draft model, since vLLM rejects a missing method."""
    if draft.config.speculation is not None:
        return draft.config.speculation
    return "draft_model" if draft.config.speculative_model is not None else None


def speculative_config(draft: PlanDraft) -> dict[str, Json] | None:
    """Method, model and length; None if speculation is not requested, or if one of them is missing."""
    config, method = draft.config, method_of(draft)
    if method is None:
        if config.num_speculative_tokens is not None:
            why = "a speculation length has no effect without a draft model"
            fix = "Set speculative_model to the draft model, or remove it."
            draft.warn("speculation-without-draft", draft.request.setting("num_speculative_tokens"), why, fix)
        return None
    if method not in METHODS:
        why = f"'{method[:40]}' is not a method of speculation"
        draft.error("unknown-speculation", draft.request.setting("speculation"), why, f"Use {', '.join(METHODS)}.")
        return None
    if config.speculative_model is None:
        why = f"{method} speculation needs a draft model"
        draft.error("speculation-without-draft", draft.request.setting("speculation"), why, "Set speculative_model.")
        return None
    if config.num_speculative_tokens is None or config.num_speculative_tokens < 1:
        why = "speculation needs the number of tokens that the draft proposes"
        setting = draft.request.setting("num_speculative_tokens")
        draft.error(
            "speculation-without-length",
            setting,
            why,
            "Set num_speculative_tokens, for example to a value from 3 to 7.",
        )
        return None
    return {
        **draft.request.speculative,
        "method": method,
        "model": config.speculative_model,
        "num_speculative_tokens": config.num_speculative_tokens,
    }
