"""Findings about the settings that are not errors. `check` prints them; the start logs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from handler.config.config_rows import json_value, secrets, without_secrets
from handler.config.dialects.vllm_names import EMPTY_FLAG, HYPHENATED
from handler.config.endpoint_config import EndpointConfig
from handler.config.fields import fields
from handler.config.finding import Finding, Severity
from handler.config.value_source import Origin, ValueSource
from handler.config.vllm_argument_table import known
from handler.json_value import Json

# Field -> the fields that have an effect only with it.
COMPANIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "multi_model": ("max_models", "unload_least_used"),
    "enable_sessions": ("max_sessions", "session_expiration"),
    "artifact_store": ("artifact_signing_key", "artifact_deadline", "artifact_lease"),
}

# Lists of vLLM whose items have commas.
WITH_COMMAS: Final = ("collect_detailed_traces", "numa_bind_cpus")


def config_findings(config: EndpointConfig) -> tuple[Finding, ...]:
    """Settings without effect, hyphenated keys, and settings that differ from those of the compiled artifacts."""
    return (*_unused(config), *_alone(config), *_one_item(config), *_hyphenated(config), *_artifacts(config))


def _unused(config: EndpointConfig) -> Iterator[Finding]:
    for setting, reason in sorted(config.unused.items()):
        severity, fix = Severity.INFO, "Remove it."
        if reason == EMPTY_FLAG:
            severity, fix = Severity.WARNING, "Write true, or remove it."
        yield Finding("no-effect", severity, setting, f"it has no effect here: {reason}", fix)


def _alone(config: EndpointConfig) -> Iterator[Finding]:
    for companion, names in COMPANIONS.items():
        for name in () if getattr(config, companion) else names:
            if getattr(config, name) != fields()[name].default:
                why = f"it has no effect without {companion}"
                fix = f"Set ENDPOINT_{companion.upper()}, or remove it."
                yield Finding("no-effect", Severity.INFO, config.setting(name), why, fix)


def _one_item(config: EndpointConfig) -> Iterator[Finding]:
    """A list that vLLM reads as one item, and whoever knows this endpoint's own lists meant as several."""
    for name, value in config.engine_args.items():
        argument = known().get(name)
        if argument is None or argument.kind != "list" or name in WITH_COMMAS:
            continue
        if not isinstance(value, list) or len(value) != 1:
            continue
        if len(str(value[0]).replace(",", " ").split()) > 1:
            why, fix = "vLLM reads it as one item, with its commas or spaces", 'Write ["...", "..."], as JSON.'
            yield Finding("one-item", Severity.WARNING, config.setting(name), why, fix)


def _hyphenated(config: EndpointConfig) -> Iterator[Finding]:
    """vllm-neuron reads only `override_neuron_config`. The user guide prints hyphens, which the plugin ignores."""
    hyphenated: dict[tuple[str, str], tuple[str, str]] = {}
    for target, source in config.sources.items():
        parts = source.name.split(".")
        for position, part in enumerate(parts[1:], 1):
            setting = str(ValueSource(source.origin, ".".join(parts[: position + 1]), source.where))
            if part in HYPHENATED and parts[position - 1].lower().endswith(("additional_config", "additional-config")):
                why = "the plugin ignores '{}' in additional_config, although the official guide prints it with hyphens"
                hyphenated[setting, part] = ("hyphenated-override", why)
            elif "-" in part and target == f"neuron_config.{part.replace('-', '_')}":
                hyphenated[setting, part] = ("hyphenated-key", "NxD Inference ignores the key '{}': it has underscores")
    for (setting, part), (code, why) in sorted(hyphenated.items()):
        fix = f"Write '{part.replace('-', '_')}'. This endpoint has read it as that."
        yield Finding(code, Severity.WARNING, setting, why.format(part), fix)


def _artifacts(config: EndpointConfig) -> Iterator[Finding]:
    """The plugin loads artifacts unchanged and silently ignores settings that differ from them."""
    for target, weaker in sorted(config.overridden.items()):
        field = fields().get(target.partition(".")[0])
        for overridden in weaker:
            if overridden.source.origin is Origin.ARTIFACTS and field is not None and not field.metadata.secret:
                name = target.partition(".")[0]
                configured = _shown(config, getattr(config, name), target)
                compiled = _shown(config, overridden.value, target)
                why = f"the artifacts were compiled with {compiled}, but {config.source(target)} is {configured}"
                fix = "Set it to the value that the artifacts were compiled with, or compile again."
                yield Finding("artifacts-differ", Severity.WARNING, config.source(target).name, why, fix)


def _shown(config: EndpointConfig, value: object, name: str) -> Json:
    return without_secrets(json_value(value), secrets(config), name)
