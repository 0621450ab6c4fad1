"""Completes a request for speculation, and builds `speculative_config`, which vLLM has since 0.9."""

from __future__ import annotations

from dataclasses import replace

from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity, conflict
from handler.json_value import Json
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.lines.line import METHODS
from handler.neuron.lines.plan_draft import PlanDraft, speculative_keys


def complete_speculation(config: EndpointConfig, model: ModelFacts | None) -> tuple[EndpointConfig, list[Finding]]:
    """Takes method and length from where the guides have them: NeuronConfig, and the draft's config.json and name.

    :param model: the facts of the draft model, if they are known.
    """
    findings = list[Finding]()
    if config.speculative_model is None:
        return config, []
    length = config.neuron_config.get("speculation_length")
    if type(length) is int and length > 0 and length != config.num_speculative_tokens:
        if config.num_speculative_tokens is not None:
            name = config.setting("num_speculative_tokens")
            findings.append(conflict(config.raw_key("speculation_length"), length, name, config.num_speculative_tokens))
        config = replace(config, num_speculative_tokens=length)
    key = "enable_eagle_speculation"
    flag = config.raw_key(key) if config.neuron_config.get(key) is True else "is_eagle" if _is_eagle(model) else None
    method = "eagle" if flag is not None else _named(config, model)
    if method is not None and config.speculation is None:
        sources = {**config.sources, "speculation": config.source("speculative_model")}
        config = replace(config, speculation=method, sources=sources if flag is None else config.sources)
        reason = f"{flag} is true" if flag is not None else f"the draft's name has '{method}' in it"
        why, fix = f"{reason}, and the plan sets speculation to {method}", "Set speculation to choose yourself."
        findings.append(Finding("completed", Severity.INFO, config.setting("speculation"), why, fix))
    elif flag is not None and config.speculation != "eagle":
        findings.append(conflict(flag, True, config.setting("speculation"), config.speculation))
    return config, findings


def _is_eagle(model: ModelFacts | None) -> bool:
    """Guide "Transformers NeuronX ... for Continuous Batching", EAGLE Speculative Decoding."""
    return model is not None and model.config.get("is_eagle") is True


def _named(config: EndpointConfig, model: ModelFacts | None) -> str | None:
    """A missing method, as vLLM reads it from the draft's name (0.9.1 to 0.32, vllm/config/speculative.py).

    In an EAGLE3 draft's config.json, the architecture has the word too.
    """
    if "method" in speculative_keys(config) or config.speculative_model is None:
        return None
    name = config.speculative_model.rstrip("/").rpartition("/")[2].lower()
    architectures = model.architectures if model is not None else ()
    if "eagle-" in name:
        return "eagle"
    return "eagle3" if any("eagle3" in text.lower() for text in (name, *architectures)) else None


def method_of(draft: PlanDraft) -> str | None:
    """The configured method. A draft without a method is a plain draft model, since vLLM rejects a missing method."""
    if "method" in speculative_keys(draft.config):
        return None  # a method of vLLM's own
    if draft.config.speculation is not None:
        return draft.config.speculation
    return "draft_model" if draft.config.speculative_model is not None else None


def speculative_config(draft: PlanDraft) -> dict[str, Json] | None:
    """Method, model and length; None if speculation is not requested, or if one of them is missing."""
    config, method = draft.config, method_of(draft)
    if method is None:
        if config.num_speculative_tokens is not None and not speculative_keys(config):
            why = "a speculation length has no effect without a draft model"
            fix = "Set speculative_model to the draft model, or remove it."
            draft.warn("speculation-without-draft", "num_speculative_tokens", why, fix)
        return None
    if method not in METHODS:
        why = f"'{method[:40]}' is not a method of speculation"
        draft.error("unknown-speculation", "speculation", why, f"Use {', '.join(METHODS)}.")
        return None
    if config.speculative_model is None:
        why = f"{method} speculation needs a draft model"
        draft.error("speculation-without-draft", "speculation", why, "Set speculative_model.")
        return None
    if config.num_speculative_tokens is None or config.num_speculative_tokens < 1:
        why = "speculation needs the number of tokens that the draft proposes"
        fix = "Set num_speculative_tokens, for example to a value from 3 to 7."
        draft.error("speculation-without-length", "num_speculative_tokens", why, fix)
        return None
    return {
        **speculative_keys(config),
        "method": method,
        "model": config.speculative_model,
        "num_speculative_tokens": config.num_speculative_tokens,
    }
