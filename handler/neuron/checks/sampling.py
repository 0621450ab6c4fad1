"""Sampling: what the device does, and what it ignores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.neuron.checks.check_context import CheckContext, error, info, warning

KEY: Final = "on_device_sampling_config"
# The most that the hardware samples from (vllm-project/vllm-neuron, neuronx_distributed_model_runner.py).
MOST: Final = 256


def on_device(case: CheckContext) -> Iterator[Finding]:
    """Parameters that on-device sampling ignores in silence."""
    sampling = case.values.given.get(KEY)
    if not case.nxd or not isinstance(sampling, dict):
        return
    if case.config.on_device_sampling is None and KEY not in case.draft.raw:
        why = (
            "sampling is on the device: only temperature, top_p and top_k count, and structured output is not enforced"
        )
        fix = "Set on_device_sampling to false for penalties, min_p or structured output."
        yield info("on-device-sampling", case.setting("on_device_sampling"), why, fix)
    if KEY in case.draft.raw and sampling.get("dynamic") is not True:
        why = "without 'dynamic' every request is sampled alike: temperature, top_p and top_k of a request are ignored"
        fix = 'Add "dynamic": true to on_device_sampling_config.'
        finding = info if case.values.speculates else warning
        yield finding("static-sampling", case.key(KEY), why, fix)


def global_topk(case: CheckContext) -> Iterator[Finding]:
    """top_k is clamped to the smaller of global_topk and 256."""
    sampling = case.values.given.get(KEY)
    value = sampling.get("global_topk") if isinstance(sampling, dict) else None
    plain = case.config.global_topk is not None
    setting = case.setting("global_topk") if plain else f"{case.key(KEY)}.global_topk"
    if case.nxd and isinstance(value, int) and value > MOST:
        why = f"the device samples from {MOST} tokens at most, so a top_k above is clamped whatever global_topk says"
        yield warning("global-topk", setting, why, f"Set it to {MOST} or less.")
    if plain and case.config.on_device_sampling is False:
        why = "global_topk belongs to on-device sampling, which is off"
        yield warning("global-topk-unused", setting, why, "Leave it out.")


def speculation_on_cpu(case: CheckContext) -> Iterator[Finding]:
    """Fused speculation checks its tokens on the device (NxDI models/model_base.py asserts it)."""
    if case.nxd and case.values.speculates and KEY in case.values.given and case.values.given[KEY] is None:
        why = "speculation samples on the device, and CPU sampling is asked for"
        yield error(
            "needs-on-device-sampling", case.key(KEY), why, "Leave on_device_sampling on, or do without a draft."
        )


SAMPLING: Final = (on_device, global_topk, speculation_on_cpu)
