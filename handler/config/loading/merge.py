"""Merges the assignments of all sources into one value a field.

The stronger source wins. Two different values from equally strong sources are an error. A plan applies `neuron_config`
last, so a raw key that has a field of its own competes with that field here: otherwise a weaker source's raw key would
beat a stronger source's field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from handler.config.assignment import Assignment
from handler.config.fields import fields
from handler.config.neuron_keys import competing_keys
from handler.config.problems import MASK
from handler.config.value_source import Overridden, ValueSource
from handler.errors import SettingError


def merge(assignments: Iterable[Assignment]) -> tuple[dict[str, Any], list[SettingError]]:
    """The values of `EndpointConfig`'s fields, with their sources, and an error for every contradiction."""
    rivals: dict[tuple[str, str], list[Assignment]] = {}
    unused: dict[str, str] = {}
    for assignment in assignments:
        if assignment.field == "unused":
            unused.setdefault(assignment.key, str(assignment.value))
        else:
            rivals.setdefault(_slot(assignment), []).append(assignment)
    sources: dict[str, ValueSource] = {}
    overridden: dict[str, tuple[Overridden, ...]] = {}
    values: dict[str, Any] = {"sources": sources, "overridden": overridden, "unused": unused}
    errors: list[SettingError] = []
    # The variable's own value comes first, then the flags that other settings add to it.
    for _, group in sorted(rivals.items(), key=lambda item: item[0][1]):
        winner, *others = sorted(group, key=lambda assignment: assignment.source.origin)
        different = [other for other in others if _text(other) != _text(winner)]
        errors += [_conflict(winner, other) for other in different if other.source.origin is winner.source.origin]
        _put(values, winner)
        sources.setdefault(winner.target, winner.source)
        if different:
            overridden[winner.target] = tuple(Overridden(other.value, other.source) for other in different)
    return values, errors


def _slot(assignment: Assignment) -> tuple[str, str]:
    """Assignments with the same result compete for one value."""
    if assignment.field == "neuron_config":
        field = fields().get(competing_keys().get(assignment.key, assignment.key))
        if field is not None and not field.metadata.merged:
            return field.name, ""
    return assignment.target, assignment.part


def _put(values: dict[str, Any], winner: Assignment) -> None:
    if not winner.key:
        values[winner.field] = winner.value
        return
    mapping = values.setdefault(winner.field, {})
    flags = winner.field == "neuron_env" and winner.key in mapping
    mapping[winner.key] = f"{mapping[winner.key]} {winner.value}".strip() if flags else winner.value


def _text(assignment: Assignment) -> str:
    """The value as JSON, in which equal settings are equal: `8` of a field and `8` in NeuronConfig."""
    return json.dumps(assignment.value, sort_keys=True, default=str)


def _conflict(winner: Assignment, other: Assignment) -> SettingError:
    field = fields().get(winner.field)
    texts = (_text(other), _text(winner))
    short = [text if len(text) <= 80 else f"{text[:77]}..." for text in texts]
    value, winning = (MASK, MASK) if field is not None and field.metadata.secret else short
    return SettingError(str(other.source), f"is {value}, but {winner.source} is {winning}", "Keep one of the two.")
