"""An assignment together with its source: the place where a user has set it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from handler.config.assignment import Assignment
from handler.config.value_source import Origin, ValueSource
from handler.errors import SettingError

Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class SourcedAssignment:
    """An assignment together with its source."""

    assignment: Assignment
    source: ValueSource


def sourced(
    settings: Mapping[str, Given], translate: Callable[[str, Given], list[Assignment]], origin: Origin, where: str = ""
) -> Iterator[SourcedAssignment | SettingError]:
    """Yields the assignments of every setting, or its error, in the order of the settings.

    :param where: the document's path or URI, for sources and messages.
    """
    for name, value in settings.items():
        try:
            for found in translate(name, value):
                yield SourcedAssignment(found, ValueSource(origin, f"{name}.{found.via}" if found.via else name, where))
        except SettingError as error:
            yield SettingError(f"{error.setting} in {where}", error.problem, error.fix) if where else error
