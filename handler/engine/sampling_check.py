"""Sampling honesty: what the device would ignore in silence is refused by name, with the way to have it.

On-device sampling honours temperature, top_p and top_k only; penalties, seeds and the rest reach it and change nothing
(vLLM User Guide for NxD Inference, "Decoding"; seen with the plugin). Sampling on the CPU honours all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from handler.engine.generation import Sampling
from handler.errors import InvalidField, UnsupportedField
from handler.neuron.sampling_limits import SamplingLimits

# The values that ask for nothing.
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
MEND = "leave it out, or have the endpoint sample on the CPU (ENDPOINT_ON_DEVICE_SAMPLING=false)"


def check(sampling: Sampling, limits: SamplingLimits) -> None:
    """Refuses what would be ignored.

    :raises UnsupportedField: a parameter that the device does not honour.
    :raises InvalidField: a top_k above the device's limit, which it would clamp.
    """
    if sampling.prompt_logprobs is not None and not limits.prompt_logprobs:
        raise UnsupportedField("prompt_logprobs", "this line of vLLM and Neuron has none to give: leave it out")
    if not limits.on_device:
        return
    for name, neutral in NEUTRAL.items():
        if not limits.honours(name) and getattr(sampling, name) not in neutral:
            raise UnsupportedField(name, MEND)
    if limits.global_topk is not None and (sampling.top_k or 0) > limits.global_topk:
        raise InvalidField("top_k", f"{sampling.top_k} is more than the device samples from, {limits.global_topk}")


def ignored_defaults(defaults: Mapping[str, float], limits: SamplingLimits) -> dict[str, float]:
    """What the model's own generation_config.json asks for and the device will not do."""
    if not limits.on_device:
        return {}
    return {
        name: value
        for name, value in defaults.items()
        if name in NEUTRAL and name != "temperature" and not limits.honours(name) and value not in NEUTRAL[name]
    }
