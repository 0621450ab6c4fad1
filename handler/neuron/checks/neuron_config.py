"""Checks NeuronConfig's keys and rules, on the lines that have a NeuronConfig."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from handler.config.finding import Finding
from handler.neuron.checks.check_context import CheckContext, error
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.neuron_config.config_values import ConfigValues
from handler.neuron.neuron_config.feature_rules import FEATURE_RULES
from handler.neuron.neuron_config.kernel_rules import KERNEL_RULES
from handler.neuron.neuron_config.keys import ConfigKey
from handler.neuron.neuron_config.model_rules import MODEL_RULES
from handler.neuron.neuron_config.native_keys import NATIVE_KEYS, NATIVE_SAMPLING_KEYS
from handler.neuron.neuron_config.nested_rules import NESTED_RULES
from handler.neuron.neuron_config.rule import ConfigRule
from handler.neuron.neuron_config.shape_rules import SHAPE_RULES
from handler.neuron.neuron_config.spelling import check_keys, check_override

# The rules of every NeuronConfig, and those of the plugin's versions.
CLASS_RULES: Final[tuple[ConfigRule, ...]] = SHAPE_RULES + FEATURE_RULES + KERNEL_RULES
RULES: Final[tuple[ConfigRule, ...]] = CLASS_RULES + NESTED_RULES + MODEL_RULES
ADDITIONAL: Final = {"override_neuron_config": ConfigKey("dict"), "max_prompt_length": ConfigKey("int")}


def spelling(context: CheckContext) -> Iterator[Finding]:
    """Keys that would be ignored or misread."""
    if context.nxd:
        yield from check_override(context.draft.override, context.key)
        if context.plugin:
            given = {key: context.draft.additional[key] for key in context.draft.request.additional}
            yield from check_keys(given, ADDITIONAL, lambda key: f"{context.setting('additional_config')}.{key}")
    elif context.line.keys is ConfigKeys.NATIVE:
        yield from check_keys(context.draft.override, NATIVE_KEYS, context.key, strict=False)
        sampling = context.draft.override.get("on_device_sampling_config")
        if isinstance(sampling, dict):
            whole = context.key("on_device_sampling_config")
            yield from check_keys(sampling, NATIVE_SAMPLING_KEYS, lambda key: f"{whole}.{key}")


def rules(context: CheckContext) -> Iterator[Finding]:
    """Rules that NxD Inference or the plugin would raise on, from our own table.

    A vision model's configuration has the plugin's defaults too, and NeuronConfig checks it in the same way (plugin
    0.5.0, worker/neuronx_distributed_model_loader.py:600).
    """
    if not context.nxd:
        return
    found: set[tuple[str, str]] = set()
    configurations: list[tuple[tuple[ConfigRule, ...], ConfigValues, Callable[[str], str]]]
    configurations = [(RULES if context.plugin else CLASS_RULES, context.values, context.key)]
    if context.vision is not None:
        vision = context.key("vision_neuron_config")
        configurations.append((CLASS_RULES + NESTED_RULES, context.vision, lambda key: f"{vision}.{key}"))
    for table, values, named in configurations:
        for rule in table:
            broken = rule.check(values)
            if broken is not None and (rule.code, broken.why) not in found:
                found.add((rule.code, broken.why))
                why = f"{broken.why}; NxD Inference raises an error when the model is loaded"
                yield error(rule.code, named(broken.key), why, broken.fix)
