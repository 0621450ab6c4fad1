"""Writes sampling on the native plugin: on the device or the CPU, asynchronous or not, with grammars or without.

Source: vllm-neuron 0.24.0.1.1.0, vllm_neuron/model/neuron_config.py (an absent on_device_sampling_config is the
device) and vllm_neuron/vllm/worker/neuron_model_runner.py (asynchronous execution needs the device, and neither masks
nor log probabilities reach it).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from handler.config.fields import native_key
from handler.json_value import Json
from handler.neuron.lines.plan_draft import PlanDraft
from handler.neuron.sampling_limits import KEY as SAMPLING

# Sampling on the device by the parameters of each request.
PER_REQUEST: Final[dict[str, Json]] = {"all_greedy": False}
STRUCTURED: Final = native_key("structured_outputs")
ASYNC: Final = "async_scheduling"


def spell_sampling(draft: PlanDraft) -> None:
    """Writes where tokens are sampled, and `async_scheduling`. Both are always in the plan."""
    config = draft.config
    device = config.on_device_sampling
    if SAMPLING in draft.raw:
        draft.override[SAMPLING] = draft.raw[SAMPLING]
        if device is not None and device is not (draft.raw[SAMPLING] is not None):
            draft.conflict(config.raw_key(SAMPLING), draft.raw[SAMPLING], "on_device_sampling", device)
    else:
        draft.override[SAMPLING] = dict(PER_REQUEST) if device is not False else None
        if device is None:
            why = "sampling on the device uses only temperature, top_p and top_k of a request"
            fix = "For seed, penalties and bad_words set on_device_sampling to false."
            draft.inform("completed", SAMPLING, f"{why}; the plan samples on the device", fix)
    if config.structured_outputs is not None:
        draft.override[STRUCTURED] = config.structured_outputs
    _spell_scheduling(draft)


def _spell_scheduling(draft: PlanDraft) -> None:
    asynchronous, argument = draft.config.async_mode, draft.args.get(ASYNC)
    setting = draft.config.setting(ASYNC if asynchronous is None else "async_mode")
    if asynchronous is not None and argument is not None and argument != asynchronous:
        draft.conflict(ASYNC, argument, setting, asynchronous)
    if asynchronous is None:
        asynchronous = argument if isinstance(argument, bool) else None
    reasons = list(_synchronous(draft))
    if asynchronous is None:
        draft.complete(ASYNC, not reasons, " and ".join(reasons) or "host and device overlap")
    else:
        draft.args[ASYNC] = asynchronous
        for reason in reasons if asynchronous else ():
            draft.error("needs-synchronous-scheduling", setting, f"{reason}, and {setting} is true", "Set it to false.")


def pools(args: Mapping[str, Json]) -> bool:
    """Whether the model makes embeddings (vLLM Neuron 0.24, README)."""
    return args.get("runner") == "pooling" or args.get("convert") == "embed"


def _synchronous(draft: PlanDraft) -> Iterator[str]:
    """Why scheduling cannot be asynchronous."""
    if draft.override.get(SAMPLING) is None:
        yield "sampling on the CPU needs synchronous scheduling"
    if draft.override.get(STRUCTURED, draft.raw.get(STRUCTURED)) is True:
        yield "with asynchronous scheduling the first structured request ends the engine"
    if pools(draft.args):
        yield "embeddings need synchronous scheduling"
    if draft.config.logprobs:
        yield "asynchronous scheduling returns no log probabilities"
