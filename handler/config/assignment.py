"""What a translator gives: one value for one field, without a word on where it came from."""

from __future__ import annotations

from dataclasses import dataclass

from handler.config.fields import fields
from handler.config.problems import BadValue
from handler.config.value_source import ValueSource
from handler.json_value import Json


@dataclass(frozen=True, slots=True)
class Assignment:
    """One value for one field.

    :param field: of `EndpointConfig`.
    :param value: typed as the field is.
    :param key: for `engine_args`, `neuron_config`, `neuron_env` and `unused`: the key in it.
    :param part: for compiler flags that several settings add to one variable: which setting's flag this is.
    :param via: the keys inside the setting's value that led here, as the user spelled them.
    """

    field: str
    value: object
    key: str = ""
    part: str = ""
    via: str = ""

    @property
    def target(self) -> str:
        """`max_num_seqs`, or `engine_args.seed`: as `EndpointConfig.sources` names it."""
        return f"{self.field}.{self.key}" if self.key else self.field


@dataclass(frozen=True, slots=True)
class Given:
    """An assignment and its source."""

    assignment: Assignment
    source: ValueSource


def assign(field: str, value: Json, setting: str, via: str = "") -> Assignment:
    """The field's typed value.

    :raises SettingError: naming the setting (and the key in it).
    """
    try:
        return Assignment(field, fields()[field].convert(value), via=via)
    except BadValue as bad:
        raise bad.named(f"{setting}.{via}" if via else setting) from None


def unused(setting: str, reason: str) -> Assignment:
    """A setting that is understood and has no effect here: `config explain` and `check` say so."""
    return Assignment("unused", reason, key=setting)
