"""Checks NeuronConfig's keys and rules, on the lines that have a NeuronConfig."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from handler.config.finding import Finding
from handler.config.values import shown
from handler.json_value import Json, mapping, whole_number
from handler.neuron.checks.check_context import CheckContext, error, warning
from handler.neuron.engine_plan import text_keys
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.lines.native.native_lines import VISION_SECTION, VISION_SECTIONS
from handler.neuron.lines.plan_draft import additional_config
from handler.neuron.neuron_config.class_rules import CLASS_RULES, NESTED_RULES
from handler.neuron.neuron_config.config_values import ConfigRule, ConfigValues
from handler.neuron.neuron_config.keys import (
    KEYS_021,
    NATIVE_KEYS,
    NATIVE_SAMPLING_KEYS,
    SWALLOWED,
    TOP_LEVEL,
    VISION_KEYS,
    ConfigKey,
)
from handler.neuron.neuron_config.model_rules import MODEL_RULES, SEQUENCE_PARALLEL
from handler.neuron.neuron_config.spelling import Named, check_keys, check_override
from handler.neuron.sampling_limits import KEY

# The rules of every NeuronConfig, and those of the plugin's versions.
RULES: Final[tuple[ConfigRule, ...]] = CLASS_RULES + NESTED_RULES + MODEL_RULES
# NxDI of SDK 2.26 (e07f056, models/model_base.py:1327) asserts the lengths too.
FORK_RULES: Final[tuple[ConfigRule, ...]] = (*CLASS_RULES, SEQUENCE_PARALLEL)
ADDITIONAL: Final = {"override_neuron_config": ConfigKey("dict"), "max_prompt_length": ConfigKey("int")}


BUCKETS: Final = ("buckets", "context_encoding_buckets", "token_generation_buckets", "prefix_buckets")
POSITIVE: Final = (
    *("seq_len", "max_context_length", "batch_size", "ctx_batch_size", "tkg_batch_size", "n_positions"),
    *("tp_degree", "cp_degree", "attention_dp_degree", "pp_degree", "ep_degree", *BUCKETS[1:]),
)


def silent(context: CheckContext) -> Iterator[Finding]:
    """Keys that NxD Inference or the plugin takes without a word, though they do not do what they say."""
    if not context.nxd:
        return
    values, given = context.values, context.values.given
    both = values.mlp_kernel and values.flag("quantized_mlp_kernel_enabled") and not values.flag("quantized")
    alone = given.get("is_continuous_batching") is False and values.number("batch_size") > 1
    reasons = {
        "is_eagle_draft": "it would build the model itself as a draft" * values.flag("is_eagle_draft"),
        "quantized_mlp_kernel_enabled": "this kernel is for FP8 weights, and the weights are not quantized" * both,
        "padding_side": "the plugin pads prompts on the right" * (values.text("padding_side") == "left"),
        "is_continuous_batching": "with it off, all sequences share one position" * alone,
        **{key: "enable_bucketing is false, which drops it" for key in BUCKETS if given.get(key) is not None},
    }
    for key, why in reasons.items():
        if why and (key not in BUCKETS or given.get("enable_bucketing") is False):
            yield warning("silent-neuron-key", context.key(key), why, "Remove it, or correct the other.")
    own, dtype = values.text("torch_dtype"), mapping(context.draft.override.get("draft_overrides")).get("torch_dtype")
    if isinstance(dtype, str) and dtype.removeprefix("torch.") != own:
        why = f"the draft's torch_dtype {dtype[:20]} is not the model's, {own}, and the plugin raises an error"
        yield error("draft-dtype", context.key("draft_overrides"), why, "Remove it there.")
    yield from _not_positive(text_keys(context.draft.override), context.key)
    vision, setting = context.draft.override.get("vision_neuron_config"), context.key("vision_neuron_config")
    yield from _not_positive(mapping(vision), lambda key: f"{setting}.{key}")


def _not_positive(keys: Mapping[str, Json], named: Named) -> Iterator[Finding]:
    """Lengths and degrees below 1. Of another type, only the items of a list: see `check_keys`."""
    for key in POSITIVE:
        value = keys.get(key)
        items = value if isinstance(value, list) else [] if whole_number(value) is None else [value]
        wrong = [item for item in items if (whole_number(item) or 0) < 1]
        if wrong:
            why = f"{shown(wrong[0])} is not a whole number above 0"
            yield error("not-positive", named(key), why, "Give 1 or more, or remove it.")


def spelling(context: CheckContext) -> Iterator[Finding]:
    """Keys that would be ignored or misread."""
    if context.nxd:
        yield from check_override(context.draft.override, context.key)
        if context.plugin:
            additional = additional_config(context.config)
            yield from check_keys(additional, ADDITIONAL, lambda key: f"{context.setting('additional_config')}.{key}")
    elif context.line.keys is ConfigKeys.NATIVE:
        yield from _native_spelling(context)


def _native_spelling(context: CheckContext) -> Iterator[Finding]:
    """The native plugin drops an unknown key without a word."""
    given, line = context.draft.override, context.line.name
    known = NATIVE_KEYS | (KEYS_021 if line == "native-0.21" else {})
    yield from _native_keys(given, known, context.key)
    sampling, whole = given.get(KEY), context.key(KEY)
    if isinstance(sampling, dict):
        read = {key: value for key, value in sampling.items() if key not in SWALLOWED}
        yield from _native_keys(read, NATIVE_SAMPLING_KEYS, lambda key: f"{whole}.{key}")
        for key in (name for name in SWALLOWED if name in sampling):
            why = f"the plugin does not read {key} here: each request has its own"
            yield warning("sampling-key-unread", f"{whole}.{key}", why, "Remove it.")
    section = VISION_SECTIONS.get(line, VISION_SECTION)
    additional, setting = context.draft.additional, context.setting("additional_config")
    yield from _native_keys(
        additional, TOP_LEVEL | {section: ConfigKey("dict")}, lambda key: f"{setting}.{key}" if key != section else key
    )
    vision = additional.get(section)
    if isinstance(vision, dict):
        read = {key: value for key, value in vision.items() if key not in TOP_LEVEL}
        yield from _native_keys(read, VISION_KEYS, lambda key: f"{context.setting(VISION_SECTION)}.{key}")


def _native_keys(given: Mapping[str, Json], known: Mapping[str, ConfigKey], named: Named) -> list[Finding]:
    reference = "vLLM Neuron's configuration reference"
    return check_keys(given, known, named, sampling=NATIVE_SAMPLING_KEYS, reference=reference)


def rules(context: CheckContext) -> Iterator[Finding]:
    """Rules that NxD Inference or the plugin would raise on, from our own table.

    A vision model's configuration has the plugin's defaults too, and NeuronConfig checks it in the same way (plugin
    0.5.0, worker/neuronx_distributed_model_loader.py:600).
    """
    if not context.nxd:
        return
    found: set[tuple[str, str]] = set()
    configurations: list[tuple[tuple[ConfigRule, ...], ConfigValues, Callable[[str], str]]]
    configurations = [(RULES if context.plugin else FORK_RULES, context.values, context.key)]
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
