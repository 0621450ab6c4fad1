"""Checks sampling on the device, and the settings that it ignores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.neuron.checks.check_context import CheckContext, error, info, warning
from handler.neuron.sampling_limits import KEY, MOST


def on_device(context: CheckContext) -> Iterator[Finding]:
    """Parameters that on-device sampling silently ignores."""
    sampling = context.values.given.get(KEY)
    if not context.nxd or not isinstance(sampling, dict):
        return
    if context.config.on_device_sampling is None and KEY not in context.draft.raw:
        why = "sampling on the device uses only temperature, top_p and top_k, and does not enforce structured output"
        fix = "For penalties, min_p or structured output set on_device_sampling to false."
        yield info("on-device-sampling", context.setting("on_device_sampling"), why, fix)
    if KEY in context.draft.raw and sampling.get("dynamic") is not True:
        why = "without 'dynamic' all requests are sampled alike: their temperature, top_p and top_k are ignored"
        fix = 'Add "dynamic": true to on_device_sampling_config.'
        finding = info if context.values.speculates else warning
        yield finding("static-sampling", context.key(KEY), why, fix)


def global_topk(context: CheckContext) -> Iterator[Finding]:
    """top_k is clamped to the smaller of global_topk and 256."""
    sampling = context.values.given.get(KEY)
    value = sampling.get("global_topk") if isinstance(sampling, dict) else None
    plain = context.config.global_topk is not None
    setting = context.setting("global_topk") if plain else f"{context.key(KEY)}.global_topk"
    if context.nxd and isinstance(value, int) and value > MOST:
        why = f"the device samples from at most {MOST} tokens; a larger top_k is clamped, whatever global_topk is"
        yield warning("global-topk", setting, why, f"Set it to {MOST} or less.")
    if plain and context.config.on_device_sampling is False:
        why = "global_topk has an effect only with on-device sampling, which is off"
        yield warning("global-topk-unused", setting, why, "Remove it.")


def speculation_on_cpu(context: CheckContext) -> Iterator[Finding]:
    """Fused speculation checks its tokens on the device (NxDI models/model_base.py asserts it)."""
    if context.nxd and context.values.speculates and KEY in context.values.given and context.values.given[KEY] is None:
        why = "speculation needs sampling on the device, and the settings choose CPU sampling"
        yield error(
            "needs-on-device-sampling",
            context.key(KEY),
            why,
            "Set on_device_sampling to true, or remove the draft model.",
        )


SAMPLING: Final = (on_device, global_topk, speculation_on_cpu)
