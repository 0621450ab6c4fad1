"""The result of a translator: one value for one field. What all translators are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from handler.config.fields import fields
from handler.config.problems import BadValue
from handler.config.values import to_bool
from handler.json_value import Json

Given = TypeVar("Given")
Converted = TypeVar("Converted")


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


# Translates one setting, given its name and its text.
Translator = Callable[[str, str], list[Assignment]]


def converted(convert: Callable[[Given], Converted], value: Given, setting: str) -> Converted:
    """Converts a value.

    :raises SettingError: the value does not fit. The error names the setting.
    """
    try:
        return convert(value)
    except BadValue as bad:
        raise bad.named(setting) from None


def assign(field: str, value: Json, setting: str, via: str = "") -> Assignment:
    """Converts a value to the type of a field.

    :raises SettingError: the value does not fit. The error names the setting, and the key in it.
    """
    return Assignment(field, converted(fields()[field].convert, value, f"{setting}.{via}" if via else setting), via=via)


def to_field(field: str) -> Translator:
    """Translates a setting to one field."""
    return lambda name, value: [assign(field, value, name)]


def if_true(found: Assignment) -> Translator:
    """Translates a flag that has a meaning only if it is on."""
    return lambda name, value: [found] if converted(to_bool, value, name) else []


def unused(setting: str, reason: str) -> Assignment:
    """A setting that is known and has no effect here. `config explain` and `check` report it."""
    return Assignment("unused", reason, key=setting)
