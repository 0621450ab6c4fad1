"""Merges the assignments of all sources into one value a field.

The stronger source wins. Two different values from equally strong sources are an error. A plan applies `neuron_config`
last, so a raw key that has a field of its own competes with that field here: otherwise a weaker source's raw key would
beat a stronger source's field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from handler.config.fields import fields
from handler.config.neuron_keys import competing_keys
from handler.config.problems import MASK
from handler.config.sourced_assignment import SourcedAssignment
from handler.config.value_source import Overridden, ValueSource
from handler.errors import SettingError


@dataclass(frozen=True, slots=True)
class Merged:
    """The values that are used, by field, in the types of the dataclass."""

    values: Mapping[str, object]
    sources: Mapping[str, ValueSource]
    overridden: Mapping[str, tuple[Overridden, ...]]
    unused: Mapping[str, str]
    errors: tuple[SettingError, ...]


def merge(assignments: Iterable[SourcedAssignment]) -> Merged:
    """Merges assignments into one value a field, with its source, and an error for every contradiction."""
    groups: dict[tuple[str, str], list[SourcedAssignment]] = {}
    unused: dict[str, str] = {}
    for one in assignments:
        if one.assignment.field == "unused":
            unused.setdefault(one.assignment.key, str(one.assignment.value))
        else:
            groups.setdefault(_slot(one), []).append(one)
    values: dict[str, object] = {}
    sources: dict[str, ValueSource] = {}
    overridden: dict[str, tuple[Overridden, ...]] = {}
    errors: list[SettingError] = []
    # The variable's own value comes first, then the flags that other settings add to it.
    for _, group in sorted(groups.items(), key=lambda item: item[0][1]):
        group.sort(key=lambda one: one.source.origin)
        winner = group[0]
        others = [one for one in group[1:] if _plain(one) != _plain(winner)]
        for rival in others:
            if rival.source.origin is winner.source.origin:
                errors.append(_contradiction(winner, rival))
        _put(values, winner)
        sources.setdefault(winner.assignment.target, winner.source)
        weaker = tuple(Overridden(one.assignment.value, one.source) for one in others)
        if weaker:
            overridden[winner.assignment.target] = weaker
    return Merged(values, sources, overridden, unused, tuple(errors))


def _slot(given: SourcedAssignment) -> tuple[str, str]:
    """Assignments with the same result compete for one value."""
    one = given.assignment
    if one.field == "neuron_config":
        field = fields().get(competing_keys().get(one.key, one.key))
        if field is not None and not field.metadata.merged:
            return field.name, ""
    return one.target, one.part


def _put(values: dict[str, object], winner: SourcedAssignment) -> None:
    one = winner.assignment
    if not one.key:
        values[one.field] = one.value
        return
    mapping = values.setdefault(one.field, {})
    assert isinstance(mapping, dict)
    if one.field == "neuron_env" and one.key in mapping:
        mapping[one.key] = f"{mapping[one.key]} {one.value}".strip()
    else:
        mapping[one.key] = one.value


def _plain(given: SourcedAssignment) -> str:
    """The value as JSON, in which equal settings are equal: `8` of a field and `8` in NeuronConfig."""
    return json.dumps(given.assignment.value, sort_keys=True, default=str)


def _contradiction(winner: SourcedAssignment, rival: SourcedAssignment) -> SettingError:
    first, second = winner.source, rival.source
    field = fields().get(winner.assignment.field)
    secret = field is not None and field.metadata.secret
    one, other = (MASK, MASK) if secret else (_short(winner), _short(rival))
    return SettingError(str(second), f"is {other}, but {first} is {one}", "Keep one of the two.")


def _short(given: SourcedAssignment) -> str:
    text = _plain(given)
    return text if len(text) <= 80 else f"{text[:77]}..."
