"""Shows a configuration: as rows for a table, and as a YAML document that `load` reads back as the same configuration.

Secrets are masked in the rows and left out of the document. A token belongs into the endpoint's environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from handler.config.endpoint_config import EndpointConfig
from handler.config.fields import ConfigField, fields
from handler.config.secret_values import MASK, SHORTEST, has_secret_name, mask, secrets_in
from handler.config.value_source import Origin
from handler.json_value import Json


@dataclass(frozen=True, slots=True)
class Row:
    """One setting.

    :param field: `max_num_seqs`, or `engine_args.seed`.
    :param value: the value as JSON; None: the line or the instance decides.
    :param source: where the value came from: a variable, a key in a document, or `default`.
    :param overridden: values of weaker sources that were not used: `4 (max_num_seqs in s3://...)`.
    """

    field: str
    value: Json
    source: str
    overridden: tuple[str, ...]
    doc: str

    @property
    def given(self) -> bool:
        return self.source != "default"

    def document(self) -> dict[str, Json]:
        return asdict(self)


def rows(config: EndpointConfig) -> list[Row]:
    """A row for every field, in the order of the dataclass; for each key of a mapping that several sources fill."""
    table: list[Row] = []
    known = secrets(config)
    for field in fields().values():
        value = getattr(config, field.name)
        if field.metadata.merged and value:
            table += [_row(config, field, f"{field.name}.{key}", item, known) for key, item in sorted(value.items())]
        else:
            table.append(_row(config, field, field.name, value, known))
    return table


def to_document(config: EndpointConfig) -> str:
    """YAML that `load` reads back as the same configuration, without the secrets."""
    import yaml

    settings = {
        field.name: json_value(getattr(config, field.name))
        for field in fields().values()
        if not field.metadata.secret and _is_set(config, field)
    }
    settings = _public(settings, secrets(config))
    if not settings:
        return "{}\n"
    text: str = yaml.safe_dump(settings, sort_keys=False, default_flow_style=False, width=120)
    return text


def json_value(value: Any) -> Json:
    """A field's value as a JSON value."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [json_value(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    plain: Json = value
    return plain


def secrets(config: EndpointConfig) -> tuple[str, ...]:
    """The values that must never be shown: of secret fields, and what other values hold."""
    values = [(name, getattr(config, name)) for name in fields()]
    values += [(name, other.value) for name, weaker in config.overridden.items() for other in weaker]
    hidden: dict[str, None] = {}
    for name, value in values:
        field = fields().get(name)
        if field is None or not field.metadata.secret:
            hidden.update(dict.fromkeys(secrets_in(value, name)))
        elif isinstance(value, str) and len(value) >= SHORTEST:
            hidden[value] = None
    return tuple(hidden)


def without_secrets(value: Json, known: tuple[str, ...], name: str = "") -> Json:
    """The value with every secret in it masked, at any depth: those that are known, and those by a name or form."""
    if value and not isinstance(value, (bool, float)) and has_secret_name(name):
        return MASK
    if isinstance(value, str):
        return mask(value, known)
    if isinstance(value, list):
        return [without_secrets(item, known) for item in value]
    if isinstance(value, dict):
        return {mask(key, known): without_secrets(item, known, key) for key, item in value.items()}
    return value


def _public(settings: Mapping[str, Json], known: tuple[str, ...]) -> dict[str, Json]:
    """The members that hold no secret. Of an object that does, its members that hold none."""
    kept: dict[str, Json] = {}
    for name, value in settings.items():
        visible = without_secrets(value, known, name)
        if visible == value and mask(name, known) == name:
            kept[name] = value
        elif isinstance(value, dict) and isinstance(visible, dict):
            kept[name] = _public(value, known)
    return kept


def _row(config: EndpointConfig, field: ConfigField, name: str, value: object, known: tuple[str, ...]) -> Row:
    def visible(item: object) -> Json:
        if field.metadata.secret and item is not None:
            return MASK
        return without_secrets(json_value(item), known, name)

    weaker = (f"{_text(visible(other.value))} ({other.source})" for other in config.overridden.get(name, ()))
    source = mask(str(config.source(name)), known)
    overridden = tuple(mask(text, known) for text in weaker)
    return Row(mask(name, known), visible(value), source, overridden, field.metadata.text)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _is_set(config: EndpointConfig, field: ConfigField) -> bool:
    value = getattr(config, field.name)
    if value == field.default:
        return value is not None and config.source(field.name).origin is not Origin.DEFAULT
    return True
