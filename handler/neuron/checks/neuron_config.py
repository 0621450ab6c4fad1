"""Checks NeuronConfig's keys and rules, on the lines that have a NeuronConfig."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.neuron.checks.check_context import CheckContext, error
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.neuron_config.feature_rules import FEATURE_RULES
from handler.neuron.neuron_config.kernel_rules import KERNEL_RULES
from handler.neuron.neuron_config.native_keys import NATIVE_KEYS, NATIVE_SAMPLING_KEYS
from handler.neuron.neuron_config.rule import ConfigRule
from handler.neuron.neuron_config.shape_rules import SHAPE_RULES
from handler.neuron.neuron_config.spelling import check_keys, check_override

RULES: Final[tuple[ConfigRule, ...]] = SHAPE_RULES + FEATURE_RULES + KERNEL_RULES


def spelling(context: CheckContext) -> Iterator[Finding]:
    """Keys that would be ignored or misread."""
    if context.nxd:
        yield from check_override(context.draft.override, context.key)
    elif context.line.keys is ConfigKeys.NATIVE:
        yield from check_keys(context.draft.override, NATIVE_KEYS, context.key, strict=False)
        sampling = context.draft.override.get("on_device_sampling_config")
        if isinstance(sampling, dict):
            whole = context.key("on_device_sampling_config")
            yield from check_keys(sampling, NATIVE_SAMPLING_KEYS, lambda key: f"{whole}.{key}")


def rules(context: CheckContext) -> Iterator[Finding]:
    """Rules that NeuronConfig would raise on, from our own table."""
    if not context.nxd:
        return
    for rule in RULES:
        broken = rule.check(context.values)
        if broken is not None:
            why = f"{broken.why}; NeuronConfig raises an error when the model is loaded"
            yield error(rule.code, context.key(broken.key), why, broken.fix)
