"""Finds keys that NxD Inference would ignore or misread: unknown and deprecated ones, and values of a wrong type."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Final

from handler.config.dialects.vllm_names import MULTIMODAL_KEYS
from handler.config.finding import Finding, Severity
from handler.json_value import Json
from handler.neuron.neuron_config.config_values import FOLLOWS
from handler.neuron.neuron_config.keys import CHUNKED_PREFILL_KEYS, DEPRECATED, KEYS, PLUGIN, SAMPLING_KEYS, ConfigKey

Named = Callable[[str], str]
WRONG_TYPE: Final = "neuron-key-type"
WORDS: Final = {
    "int": "a whole number",
    "digits": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a string",
    "list": "a list",
    "dict": "an object",
}
NESTED: Final = {
    "on_device_sampling_config": SAMPLING_KEYS,
    "chunked_prefill_config": CHUNKED_PREFILL_KEYS,
    "draft_overrides": KEYS,
}


def check_override(override: Mapping[str, Json], named: Named) -> list[Finding]:
    """Findings on the keys of an `override_neuron_config`, including its nested configurations."""
    findings = []
    for key, value in override.items():
        if key in MULTIMODAL_KEYS and isinstance(value, dict):
            findings += check_override(value, lambda inner, outer=key: f"{named(outer)}.{inner}")  # type: ignore[misc]
            continue
        findings += check_keys({key: value}, KEYS | PLUGIN, named)
        if key in NESTED and isinstance(value, dict):
            nested = NESTED[key]
            findings += check_keys(value, nested, lambda inner, outer=key: f"{named(outer)}.{inner}")  # type: ignore[misc]
    return findings


def check_keys(
    keys: Mapping[str, Json],
    known: Mapping[str, ConfigKey],
    named: Named,
    *,
    sampling: Mapping[str, ConfigKey] = SAMPLING_KEYS,
    reference: str = "NxD Inference's NeuronConfig",
) -> list[Finding]:
    """Findings on unknown keys and wrong types.

    :param sampling: the keys of the `on_device_sampling_config` among the known ones.
    :param reference: what lists the known keys.
    """
    findings = []
    for key, value in keys.items():
        if key in known:
            kind = known[key].kind
            if not _is(value, kind) and (value is not None or _is_calculated(key, known[key])):
                why = f"{_short(value)} is not {WORDS[kind]}; loading the model would fail, or misread the value"
                fix = f"Give {WORDS[kind]}."
                findings.append(Finding(WRONG_TYPE, Severity.ERROR, named(key), why, fix))
        elif key in DEPRECATED:
            replacement = DEPRECATED[key]
            why = "the key is deprecated: NeuronConfig still reads it, and warns"
            if not replacement:
                why = "NeuronConfig no longer reads this key and computes the value itself"
            fix = f"Use {replacement}." if replacement else "Remove it."
            findings.append(Finding("deprecated-neuron-key", Severity.WARNING, named(key), why, fix))
        else:
            findings.append(_unknown(key, known, named, sampling, reference))
    return findings


def _is_calculated(key: str, known_key: ConfigKey) -> bool:
    """Whether NeuronConfig calculates with the number, so that null would be a TypeError."""
    return known_key.kind == "int" and (known_key.default is not None or key in FOLLOWS or key == "logical_nc_config")


def _unknown(
    key: str, known: Mapping[str, ConfigKey], named: Named, sampling: Mapping[str, ConfigKey], reference: str
) -> Finding:
    near = nearest(key, known)
    inner = nearest(key, sampling) if known is not sampling and "on_device_sampling_config" in known else None
    if near is None and inner is not None:
        near = f"on_device_sampling_config.{inner}"
    fix = f"Did you mean '{near}'?" if near else f"Remove it, or look up its spelling in {reference}."
    why = f"'{key[:80]}' is not a known key: it would be ignored, with at most a line in the log"
    return Finding("unknown-neuron-key", Severity.ERROR, named(key), why, fix)


def nearest(key: str, known: Mapping[str, ConfigKey]) -> str | None:
    """The known key that is closest to a misspelt one, or None."""
    plain = key[:80].replace("-", "_").lower()
    matches = difflib.get_close_matches(plain, known, n=1, cutoff=0.8)
    return matches[0] if matches else None


def _is(value: Json, kind: str) -> bool:
    if kind == "digits" and isinstance(value, str):
        return value.strip().isascii() and value.strip().isdigit()
    if kind in ("int", "digits"):
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "float":
        return isinstance(value, int | float) and not isinstance(value, bool)
    types: dict[str, type] = {"bool": bool, "str": str, "list": list, "dict": dict}
    return kind == "any" or isinstance(value, types[kind])


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
