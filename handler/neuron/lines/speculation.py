"""Speculation as vLLM spells it since 0.9: one `speculative_config`."""

from __future__ import annotations

from typing import Final

from handler.json_value import Json
from handler.neuron.lines.feature import METHODS
from handler.neuron.lines.plan_draft import PlanDraft

DRAFT_METHODS: Final = ("draft_model", "eagle", "eagle3")


def method_of(draft: PlanDraft) -> str | None:
    """The method asked for; a draft without a method is a plain draft model (vLLM refuses it without one)."""
    if draft.config.speculation is not None:
        return draft.config.speculation
    return "draft_model" if draft.config.speculative_model is not None else None


def speculative_config(draft: PlanDraft) -> dict[str, Json] | None:
    """Method, model and length; None where no speculation is asked for, or where something is missing."""
    config, method = draft.config, method_of(draft)
    if method is None:
        if config.num_speculative_tokens is not None:
            why = "a speculation length without a draft model does nothing"
            fix = "Name the draft with speculative_model, or leave it out."
            draft.warn("speculation-without-draft", draft.request.setting("num_speculative_tokens"), why, fix)
        return None
    if method not in METHODS:
        why = f"'{method[:40]}' is no method of speculation"
        draft.error("unknown-speculation", draft.request.setting("speculation"), why, f"Use {', '.join(METHODS)}.")
        return None
    if config.speculative_model is None:
        why = f"{method} speculation needs a draft model"
        draft.error("speculation-without-draft", draft.request.setting("speculation"), why, "Set speculative_model.")
        return None
    if config.num_speculative_tokens is None or config.num_speculative_tokens < 1:
        why = "speculation needs a length: how many tokens the draft proposes"
        setting = draft.request.setting("num_speculative_tokens")
        draft.error("speculation-without-length", setting, why, "Set num_speculative_tokens, to 3 to 7 say.")
        return None
    return {
        **draft.request.speculative,
        "method": method,
        "model": config.speculative_model,
        "num_speculative_tokens": config.num_speculative_tokens,
    }
