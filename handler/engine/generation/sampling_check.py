"""Rejects sampling parameters that the engine would silently ignore. The error names the parameter and the fix.

On-device sampling supports only temperature, top_p and top_k. Penalties, seeds and the others have no effect there
(vLLM User Guide for NxD Inference, "Decoding"; seen with the plugin). Sampling on the CPU supports all of them, or with
the plugins most of them (`handler/neuron/sampling_limits.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from handler.engine.generation.generation import Sampling
from handler.errors import InvalidField, UnsupportedField
from handler.neuron.sampling_limits import CPU_SETTING, SUPPORTED, SamplingLimits

# The sampling parameters, each with the values that have no effect.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "temperature": (None,),
    "top_p": (None, 1.0),
    "top_k": (None, 0, -1),
    "min_p": (None, 0.0),
    "repetition_penalty": (None, 1.0),
    "frequency_penalty": (None, 0.0),
    "presence_penalty": (None, 0.0),
    "seed": (None,),
    "min_tokens": (0,),
    "logprobs": (None,),
    "grammar": (None,),
}
# The same for fields that only vLLM's serving classes support. On-device sampling returns no log probabilities, and no
# mask or bias reaches it. PARAMETERS has the parameter that a field needs, where it has another name.
PARAMETERS: Mapping[str, str] = {
    "top_logprobs": "logprobs",
    "use_beam_search": "logprobs",
    "structured_outputs": "grammar",
    "response_format": "grammar",
}
DOCUMENT_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "prompt_logprobs": (None,),
    "logit_bias": (None, {}),
    "allowed_token_ids": (None, []),
    "logprob_token_ids": (None, []),
    "bad_words": (None, []),
    "structured_outputs": (None, {}),
    "response_format": (None, {"type": "text"}),
    "use_beam_search": (None, False),
    # /v1/responses
    "repetition_penalty": (None, 1, 1.0),
    "seed": (None,),
}
# What a sampler that is always greedy does (guide "vLLM User Guide for NxD Inference", Decoding).
GREEDY: Mapping[str, object] = {"temperature": 0, "top_k": 1}
STATIC = (
    "leave it out, or set dynamic to true in on_device_sampling_config (on the native lines, take all_greedy out of "
    "it): the device samples all requests alike"
)


def check(sampling: Sampling, limits: SamplingLimits) -> None:
    """Rejects sampling parameters that the device would ignore.

    :raises UnsupportedField: the device does not support a parameter.
    :raises InvalidField: top_k is above the device's limit. The device would lower it silently.
    """
    if sampling.prompt_logprobs is not None and not limits.prompt_logprobs:
        raise UnsupportedField(
            "prompt_logprobs", "this endpoint returns no log probabilities of a prompt: leave it out"
        )
    _check_values({name: getattr(sampling, name) for name in NEUTRAL}, limits)


def supported(sampling: Sampling, limits: SamplingLimits) -> Sampling:
    """The sampling without what the device would ignore, and with a top_k that it has: `check` accepts it."""
    values = {name: getattr(sampling, name) for name in NEUTRAL}
    kept: dict[str, Any] = {name: NEUTRAL[name][0] for name in _without_effect(values, limits)}
    if limits.global_topk is not None and (sampling.top_k or 0) > limits.global_topk:
        kept.setdefault("top_k", limits.global_topk)
    return replace(sampling, **kept)


def _check_values(values: Mapping[str, object], limits: SamplingLimits) -> None:
    """Raises as `check`. The values are by names of `NEUTRAL`."""
    for name in _without_effect(values, limits):
        raise UnsupportedField(name, fix(limits, name))
    top_k = values["top_k"]
    if limits.global_topk is not None and isinstance(top_k, int) and top_k > limits.global_topk:
        raise InvalidField("top_k", f"{top_k} is above the device's limit of {limits.global_topk}")


def _without_effect(values: Mapping[str, object], limits: SamplingLimits) -> Iterator[str]:
    """The parameters that the device would ignore."""
    for name, value in values.items():
        greedy = limits.greedy and name in GREEDY and value == GREEDY[name] and type(value) is not bool
        if not limits.supports(name) and value not in NEUTRAL[name] and not greedy:
            yield name


def check_document(document: Mapping[str, Any], limits: SamplingLimits) -> None:
    """As `check`, for a body that vLLM's serving classes answer.

    :raises UnsupportedField: the body has a field that on-device sampling does not support, such as a mask, a bias, a
        grammar or logprobs.
    """
    logprobs = document.get("logprobs")
    echoed = document.get("echo") and logprobs is not None and logprobs is not False
    if (echoed or document.get("prompt_logprobs") is not None) and not limits.prompt_logprobs:
        field = "logprobs" if echoed else "prompt_logprobs"
        raise UnsupportedField(field, "this endpoint returns no log probabilities of a prompt")
    for name, neutral in DOCUMENT_NEUTRAL.items():
        value, parameter = document.get(name), PARAMETERS.get(name, name)
        if not limits.supports(parameter) and not any(value == none and type(value) is type(none) for none in neutral):
            raise UnsupportedField(name, fix(limits, parameter))
    if not limits.supports("grammar"):
        _reject_grammars(document, fix(limits, "grammar"))
    include = document.get("include")
    if not limits.logprobs and isinstance(include, list) and "message.output_text.logprobs" in include:
        raise UnsupportedField("include", fix(limits, "logprobs"))
    if document.get("n") not in (None, 1) and not limits.supports("temperature"):
        raise UnsupportedField("n", "without random sampling, all choices would be the same")
    _check_values({name: document.get(name) for name in ("temperature", "top_p", "top_k")}, limits)


def _reject_grammars(document: Mapping[str, Any], fix: str) -> None:
    choice = document.get("tool_choice")
    if document.get("tools") and (choice == "required" or isinstance(choice, dict)):
        raise UnsupportedField("tool_choice", f"a required tool call needs a grammar: {fix}")
    text = document.get("text")
    if isinstance(text, dict) and text.get("format") not in (None, {"type": "text"}):
        raise UnsupportedField("text.format", fix)


def fix(limits: SamplingLimits, parameter: str) -> str:
    """What to do about a parameter that has no effect."""
    if limits.on_device and parameter in SUPPORTED:
        return STATIC
    setting = limits.setting(parameter)
    if setting == CPU_SETTING:
        return f"leave it out, or have the endpoint sample on the CPU ({setting})"
    return f"leave it out, or set {setting} on the endpoint" if setting else "this line never has it: leave it out"


def ignored_defaults(defaults: Mapping[str, float], limits: SamplingLimits) -> dict[str, float]:
    """The values of the model's generation_config.json that the engine ignores."""
    return {
        name: value
        for name, value in defaults.items()
        if name in NEUTRAL and name != "temperature" and not limits.supports(name) and value not in NEUTRAL[name]
    }
