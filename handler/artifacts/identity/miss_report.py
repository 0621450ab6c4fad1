"""Explains why an entry was not found: names the nearest entry and the fields in which it differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.identity.canonical_json import canonical
from handler.artifacts.store.manifest import Manifest
from handler.json_value import Json

ABSENT = "(absent)"
MOST_NAMED, MOST_LISTED = 12, 200  # in the sentence, in the event
# A difference in these fields weighs more: another model is further away than another setting of the same model.
HEAVY = ("tensors", "model.")
# Groups whose name is removed from a field, unless two groups have the same field.
GROUPS = ("versions.", "engine_args.", "neuron_config.", "env.", "engine_args.additional_config.")


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs: the value in the nearest entry, and the requested value. None means absent."""

    field: str
    there: str | None
    here: str | None

    def __str__(self) -> str:
        return f"{self.field} {self.there or ABSENT} -> {self.here or ABSENT}"


@dataclass(frozen=True, slots=True)
class Miss:
    """The explanation of a miss.

    :param nearest: the key of the nearest entry. None if the store has no entry of this kind.
    :param entries: how many entries were compared.
    """

    key: str
    kind: str
    nearest: str | None
    differences: tuple[Difference, ...]
    entries: int

    def text(self) -> str:
        """Returns the explanation as one sentence, for a log or a terminal."""
        if self.nearest is None:
            return f"No entry for key {self.key[:16]}; the store has no {self.kind} entries."
        named = ", ".join(map(str, self.differences[:MOST_NAMED]))
        more = len(self.differences) - MOST_NAMED
        return f"No entry for key {self.key[:16]}; the nearest differs in: {named}{f', and {more} more' * (more > 0)}."

    def event(self) -> dict[str, Json]:
        """Returns the explanation as an event. `fields` has few values, so it can be the label of a metric."""
        listed = self.differences[:MOST_LISTED]
        return {
            "event": "artifact_miss",
            "message": self.text(),
            "key": self.key,
            "kind": self.kind,
            "nearest": self.nearest,
            "entries": self.entries,
            "fields": [difference.field for difference in listed],
            "differences": [asdict(difference) for difference in listed],
        }


def explain(key: ArtifactKey, entries: Iterable[Manifest]) -> Miss:
    """Compares the requested key with every entry of its kind. Of equally near entries the newest is named."""
    requested = _flat(key.fields)
    compared = 0
    nearest: tuple[tuple[int, float], Manifest, list[str]] | None = None
    for entry in entries:
        if entry.kind != key.kind:
            continue
        compared += 1
        present = _flat(entry.fields)
        names = [name for name in dict.fromkeys([*requested, *present]) if requested.get(name) != present.get(name)]
        distance = sum(5 if name.startswith(HEAVY) else 1 for name in names), -entry.created
        if nearest is None or distance < nearest[0]:
            nearest = distance, entry, names
    if nearest is None:
        return Miss(key.digest, key.kind, None, (), compared)
    _, entry, names = nearest
    present = _flat(entry.fields)
    short = _short(dict.fromkeys([*requested, *present]))
    differences = tuple(Difference(short[name], present.get(name), requested.get(name)) for name in names)
    return Miss(key.digest, key.kind, entry.key, differences, compared)


def equal_fields(entry: Manifest) -> str:
    """Returns the fields of a found entry as one sentence. A key is a digest of them, so all equal the requested ones.

    Digests and fields of the model are counted, not printed.
    """
    flat = _flat(entry.fields)
    short = _short(flat)
    shown = [f"{short[name]} {value}" for name, value in flat.items() if not name.startswith(HEAVY) and len(value) < 64]
    return f"All {len(flat)} fields of key {entry.key[:16]} are equal: {', '.join(shown)}."


def _flat(fields: Mapping[str, Json], prefix: str = "") -> dict[str, str]:
    """Returns the values of nested fields as text, by dotted name."""
    leaves: dict[str, str] = {}
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            leaves.update(_flat(value, f"{prefix}{name}."))
        else:
            leaves[prefix + name] = value if isinstance(value, str) else canonical(value).decode()
    return leaves


def _short(names: Iterable[str]) -> dict[str, str]:
    short = {
        name: next((name.removeprefix(group) for group in GROUPS if name.startswith(group)), name) for name in names
    }
    counts = Counter(short.values())
    return {name: text if counts[text] == 1 else name for name, text in short.items()}
