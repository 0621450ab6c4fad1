"""The result of a translator: one value for one field. `SourcedAssignment` adds the value's source."""

from __future__ import annotations

from dataclasses import dataclass

from handler.config.fields import fields
from handler.config.problems import BadValue
from handler.config.value_source import ValueSource
from handler.json_value import Json


@dataclass(frozen=True, slots=True)
class Assignment:
    """One value for one field.

    :param field: the name of a field of `EndpointConfig`.
    :param value: has the type of the field.
    :param key: for `engine_args`, `neuron_config`, `neuron_env` and `unused`: the key in the mapping.
    :param part: for compiler flags, which several settings add to one variable: the setting that this flag is from.
    :param via: the path of keys inside the setting's value, as the user spelled them.
    """

    field: str
    value: object
    key: str = ""
    part: str = ""
    via: str = ""

    @property
    def target(self) -> str:
        """The name in `EndpointConfig.sources`: `max_num_seqs`, or `engine_args.seed`."""
        return f"{self.field}.{self.key}" if self.key else self.field


@dataclass(frozen=True, slots=True)
class SourcedAssignment:
    """An assignment together with its source."""

    assignment: Assignment
    source: ValueSource


def assign(field: str, value: Json, setting: str, via: str = "") -> Assignment:
    """Converts a value to the type of a field.

    :raises SettingError: the value does not fit. The error names the setting, and the key in it.
    """
    try:
        return Assignment(field, fields()[field].convert(value), via=via)
    except BadValue as bad:
        raise bad.named(f"{setting}.{via}" if via else setting) from None


def unused(setting: str, reason: str) -> Assignment:
    """A setting that is known and has no effect here. `config explain` and `check` report it."""
    return Assignment("unused", reason, key=setting)
