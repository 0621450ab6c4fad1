"""`Assignment`: one value for one field, and its source. What every dialect makes of a setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from handler.config.fields import fields
from handler.config.problems import BadValue
from handler.config.value_source import DEFAULT, Origin, ValueSource
from handler.config.values import to_bool
from handler.errors import SettingError
from handler.json_value import Json

Value = TypeVar("Value")
Converted = TypeVar("Converted")


@dataclass(frozen=True, slots=True)
class Assignment:
    """One value for one field.

    :param field: the name of a field of `EndpointConfig`.
    :param value: has the type of the field.
    :param key: for `engine_args`, `neuron_config`, `neuron_env` and `unused`: the key in the mapping.
    :param part: for compiler flags, which several settings add to one variable: the setting that this flag is from.
    :param via: the path of keys inside the setting's value, as the user spelled them.
    :param source: where the user has set it. `sourced` fills it in.
    """

    field: str
    value: object
    key: str = ""
    part: str = ""
    via: str = ""
    source: ValueSource = DEFAULT

    @property
    def target(self) -> str:
        """The name in `EndpointConfig.sources`: `max_num_seqs`, or `engine_args.seed`."""
        return f"{self.field}.{self.key}" if self.key else self.field


# Translates one setting, given its name and its text.
Translator = Callable[[str, str], list[Assignment]]


def sourced(
    settings: Mapping[str, Value], translate: Callable[[str, Value], list[Assignment]], origin: Origin, where: str = ""
) -> Iterator[Assignment | SettingError]:
    """Yields the assignments of every setting, or its error, in the order of the settings.

    :param where: the document's path or URI, for sources and messages.
    """
    for name, value in settings.items():
        try:
            for assignment in translate(name, value):
                spelled = f"{name}.{assignment.via}" if assignment.via else name
                yield replace(assignment, source=ValueSource(origin, spelled, where))
        except SettingError as error:
            yield SettingError(f"{error.setting} in {where}", error.problem, error.fix) if where else error


def converted(convert: Callable[[Value], Converted], value: Value, setting: str) -> Converted:
    """:raises SettingError: the value cannot be converted. The error names the setting."""
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


def if_true(assignment: Assignment) -> Translator:
    """Translates a flag that has a meaning only if it is on."""
    return lambda name, value: [assignment] if converted(to_bool, value, name) else []


def unused(setting: str, reason: str) -> Assignment:
    """A setting that is known and has no effect here. `config explain` and `check` report it."""
    return Assignment("unused", reason, key=setting)
