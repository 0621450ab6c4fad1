"""NeuronConfig's keys and rules, on the lines that have one."""

from __future__ import annotations

from collections.abc import Iterator

from handler.config.finding import Finding
from handler.neuron.checks.check_context import CheckContext, error
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.neuron_config.native_keys import NATIVE_KEYS, NATIVE_SAMPLING_KEYS
from handler.neuron.neuron_config.rules import RULES
from handler.neuron.neuron_config.spelling import check_keys, check_override


def spelling(case: CheckContext) -> Iterator[Finding]:
    """Keys that nobody would read, or would misread."""
    if case.nxd:
        yield from check_override(case.draft.override, case.key)
    elif case.line.keys is ConfigKeys.NATIVE:
        yield from check_keys(case.draft.override, NATIVE_KEYS, case.key, strict=False)
        sampling = case.draft.override.get("on_device_sampling_config")
        if isinstance(sampling, dict):
            whole = case.key("on_device_sampling_config")
            yield from check_keys(sampling, NATIVE_SAMPLING_KEYS, lambda key: f"{whole}.{key}")


def rules(case: CheckContext) -> Iterator[Finding]:
    """What NeuronConfig would raise, by our own table."""
    if not case.nxd:
        return
    for rule in RULES:
        broken = rule.check(case.values)
        if broken is not None:
            why = f"{broken.why}; NeuronConfig raises on it, once the model is loaded"
            yield error(rule.code, case.key(broken.key), why, broken.fix)
