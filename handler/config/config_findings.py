"""What reading the settings brought to light that is no error: findings for `check`, the start and the log."""

from __future__ import annotations

from collections.abc import Iterator

from handler.config.config_rows import json_value, secrets, without_secrets
from handler.config.endpoint_config import EndpointConfig
from handler.config.fields import fields
from handler.config.finding import Finding, Severity
from handler.config.value_source import Origin, ValueSource
from handler.json_value import Json

HYPHENATED = ("override-neuron-config", "neuron-config")


def config_findings(config: EndpointConfig) -> tuple[Finding, ...]:
    """Settings without effect, the guide's hyphenated key, and artifacts that were compiled for something else."""
    return (*_unused(config), *_hyphenated(config), *_artifacts(config))


def _unused(config: EndpointConfig) -> Iterator[Finding]:
    for setting, reason in sorted(config.unused.items()):
        yield Finding("no-effect", Severity.INFO, setting, f"it has no effect here: {reason}", "Leave it out.")


def _hyphenated(config: EndpointConfig) -> Iterator[Finding]:
    """vllm-neuron reads `override_neuron_config` only; the user guide prints hyphens, and they are ignored there."""
    found: dict[tuple[str, str], str] = {}
    for source in config.sources.values():
        parts = source.name.split(".")
        for position, part in enumerate(parts[1:], 1):
            if part in HYPHENATED and parts[position - 1].lower().endswith(("additional_config", "additional-config")):
                setting = str(ValueSource(source.origin, ".".join(parts[: position + 1]), source.where))
                found[setting, part] = part.replace("-", "_")
    for (setting, part), fix in sorted(found.items()):
        why = f"'{part}' in additional_config is ignored by the plugin (the official guide prints it so)"
        yield Finding(
            "hyphenated-override", Severity.WARNING, setting, why, f"Write '{fix}'; here it was read as that."
        )


def _artifacts(config: EndpointConfig) -> Iterator[Finding]:
    """The plugin loads artifacts as they stand: what was asked for beside them is ignored without a word."""
    for target, weaker in sorted(config.overridden.items()):
        field = fields().get(target.partition(".")[0])
        for one in weaker:
            if one.source.origin is Origin.ARTIFACTS and field is not None and not field.about.secret:
                name = target.partition(".")[0]
                asked = _shown(config, getattr(config, name))
                why = (
                    f"the compiled artifacts have {_shown(config, one.value)}, but {config.source(target)} says {asked}"
                )
                fix = "Ask for what the artifacts were compiled for, or compile for what is asked."
                yield Finding("artifacts-differ", Severity.WARNING, config.source(target).name, why, fix)


def _shown(config: EndpointConfig, value: object) -> Json:
    return without_secrets(json_value(value), secrets(config))
