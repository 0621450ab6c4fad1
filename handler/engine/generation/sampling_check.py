"""Rejects sampling parameters that the device would silently ignore. The error names the parameter and the fix.

On-device sampling supports only temperature, top_p and top_k. Penalties, seeds and the others have no effect there
(vLLM User Guide for NxD Inference, "Decoding"; seen with the plugin). Sampling on the CPU supports all of them, but
the NxDI plugin ignores three there (`SamplingLimits.ignored`).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from handler.engine.generation.generation import Sampling
from handler.errors import InvalidField, UnsupportedField
from handler.neuron.sampling_limits import SamplingLimits

# The sampling parameters, each with the values that have no effect.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "temperature": (None,),
    "top_p": (None, 1.0),
    "top_k": (None, 0, -1),
    "min_p": (None, 0.0),
    "repetition_penalty": (None, 1.0),
    "frequency_penalty": (0.0,),
    "presence_penalty": (0.0,),
    "seed": (None,),
    "min_tokens": (0,),
    "logprobs": (None,),
    "grammar": (None,),
}
# The same for fields that only vLLM's serving classes support. On-device sampling returns no log probabilities, and no
# mask or bias reaches it.
DOCUMENT_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "prompt_logprobs": (None,),
    "logit_bias": (None, {}),
    "allowed_token_ids": (None, []),
    "bad_words": (None, []),
    "structured_outputs": (None, {}),
    "response_format": (None, {"type": "text"}),
    "use_beam_search": (None, False),
    # /v1/responses
    "repetition_penalty": (None, 1, 1.0),
    "seed": (None,),
}
IGNORED = "leave it out: the NxDI plugin ignores it when the endpoint samples on the CPU"
FIX = "leave it out, or have the endpoint sample on the CPU (ENDPOINT_ON_DEVICE_SAMPLING=false)"


def check(sampling: Sampling, limits: SamplingLimits) -> None:
    """Rejects sampling parameters that the device would ignore.

    :raises UnsupportedField: the device does not support a parameter.
    :raises InvalidField: top_k is above the device's limit. The device would lower it silently.
    """
    if sampling.prompt_logprobs is not None and not limits.prompt_logprobs:
        raise UnsupportedField(
            "prompt_logprobs", "this endpoint's Neuron line returns no log probabilities of a prompt: leave it out"
        )
    for name in sorted(limits.ignored & NEUTRAL.keys()):
        if getattr(sampling, name) not in NEUTRAL[name]:
            raise UnsupportedField(name, IGNORED)
    if not limits.on_device:
        return
    for name, neutral in NEUTRAL.items():
        if not limits.supports(name) and getattr(sampling, name) not in neutral:
            raise UnsupportedField(name, FIX)
    if limits.global_topk is not None and (sampling.top_k or 0) > limits.global_topk:
        raise InvalidField("top_k", f"{sampling.top_k} is above the device's limit of {limits.global_topk}")


def check_document(document: Mapping[str, Any], limits: SamplingLimits) -> None:
    """As `check`, for a body that vLLM's serving classes answer.

    :raises UnsupportedField: the body has a field that on-device sampling does not support, such as a mask, a bias, a
        grammar or logprobs.
    """
    logprobs = document.get("logprobs")
    echoed = document.get("echo") and logprobs is not None and logprobs is not False
    if (echoed or document.get("prompt_logprobs") is not None) and not limits.prompt_logprobs:
        field = "logprobs" if echoed else "prompt_logprobs"
        raise UnsupportedField(field, "this endpoint's Neuron line returns no log probabilities of a prompt")
    refused = DOCUMENT_NEUTRAL if limits.on_device else sorted(limits.ignored & DOCUMENT_NEUTRAL.keys())
    for name in refused:
        value = document.get(name)
        if not any(value == none and type(value) is type(none) for none in DOCUMENT_NEUTRAL[name]):
            raise UnsupportedField(name, FIX if limits.on_device else IGNORED)
    if not limits.on_device:
        return
    choice = document.get("tool_choice")
    if document.get("tools") and (choice == "required" or isinstance(choice, dict)):
        raise UnsupportedField("tool_choice", f"a required tool call needs a grammar: {FIX}")
    text = document.get("text")
    if isinstance(text, dict) and text.get("format") not in (None, {"type": "text"}):
        raise UnsupportedField("text.format", FIX)
    include = document.get("include")
    if isinstance(include, list) and "message.output_text.logprobs" in include:
        raise UnsupportedField("include", FIX)
    if document.get("n") not in (None, 1) and not limits.supports("temperature"):
        raise UnsupportedField("n", "without random sampling, all choices would be the same")
    for name in ("temperature", "top_p", "top_k"):
        if not limits.supports(name) and document.get(name) not in NEUTRAL[name]:
            raise UnsupportedField(name, FIX)
    top_k = document.get("top_k")
    if limits.global_topk is not None and isinstance(top_k, int) and top_k > limits.global_topk:
        raise InvalidField("top_k", f"{top_k} is above the device's limit of {limits.global_topk}")


def ignored_defaults(defaults: Mapping[str, float], limits: SamplingLimits) -> dict[str, float]:
    """The values of the model's generation_config.json that the engine ignores."""
    ignored: Set[str] = limits.ignored
    if limits.on_device:
        ignored = {name for name in NEUTRAL if not limits.supports(name)} - {"temperature"}
    return {name: value for name, value in defaults.items() if name in ignored and value not in NEUTRAL[name]}
