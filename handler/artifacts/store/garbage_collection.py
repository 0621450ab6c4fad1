"""Deleting entries by age and by count, and the objects that no entry names any more. See `condemnation` for how an
object is taken without taking it from a publisher.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass

from handler.artifacts.store import manifest_json
from handler.artifacts.store import object_names as layout
from handler.artifacts.store.gc_marks import GRACE, Marks, MarkState
from handler.storage.object_store import ObjectInfo, ObjectStore, supports_conditions
from handler.storage.storage_errors import ConditionsIgnored, NotFound


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection did: objects deleted and their bytes, and objects condemned for a later one to delete."""

    deleted: int = 0
    deleted_bytes: int = 0
    condemned: int = 0


def expired(
    objects: ObjectStore, *, older_than: float | None = None, keep: int | None = None
) -> list[tuple[str, str, ObjectInfo]]:
    """Kind, key and manifest of the entries that a deletion by age or count would take. Pinned ones are never among
    them, and do not count.

    :param older_than: seconds since the entry was published; by the store's clock, not this machine's.
    :param keep: of each kind, that many of the newest stay.
    """
    pinned = {info.key.removeprefix(layout.PINS) for info in objects.list(layout.PINS)}
    entries = defaultdict(list)
    for info in objects.list(layout.MANIFESTS):
        name = layout.of_manifest(info.key)
        if name and "/".join(name) not in pinned:
            entries[name[0]].append((*name, info))
    now = _now(objects) if older_than is not None else 0.0
    chosen = []
    for listed in entries.values():
        listed.sort(key=lambda entry: entry[2].modified, reverse=True)
        for position, entry in enumerate(listed):
            too_old = older_than is not None and now - entry[2].modified > older_than
            too_many = keep is not None and position >= keep
            if too_old or too_many:
                chosen.append(entry)
    return chosen


def collect(objects: ObjectStore, grace: float = GRACE) -> Collected:
    """Deletes objects that were condemned `grace` seconds ago or more and that no entry names; condemns those that no
    entry names now. So an object is gone with the second collection after its entry.

    :raises InvalidManifest: one cannot be read, so it is not known what it names: delete it first.
    :raises ConditionsIgnored: no claim would hold here.
    """
    if not supports_conditions(objects):
        raise ConditionsIgnored(objects.uri)
    marks = Marks(objects)
    now = _now(objects)
    # The order matters: marks, then objects, then manifests. What a publisher finishes in between is seen as named.
    marked = marks.all()
    listed = {digest: info for info in objects.list(layout.OBJECTS) if (digest := layout.digest_of(info.key))}
    named = _named(objects)
    deleted = deleted_bytes = condemned = 0
    for digest, mark in marked.items():
        if digest in named or digest not in listed:
            if now - mark.modified > grace:
                marks.remove(digest, mark)
        elif now - mark.modified >= grace:
            if marks.state(digest) is MarkState.SPARED:
                condemned += marks.condemn(digest, mark)
            elif marks.claim(digest, mark):
                objects.delete(layout.object_name(digest))
                marks.remove(digest)
                deleted, deleted_bytes = deleted + 1, deleted_bytes + listed[digest].size
    for digest, info in listed.items():
        if digest not in named and digest not in marked and now - info.modified >= grace:
            condemned += marks.condemn(digest, None)
    return Collected(deleted, deleted_bytes, condemned)


def _named(objects: ObjectStore) -> set[str]:
    """Every digest that a manifest names. Signatures do not matter here: an entry of another key is kept as well."""
    named: set[str] = set()
    for info in objects.list(layout.MANIFESTS):
        try:
            body, _ = objects.get(info.key)
        except NotFound:
            continue
        named.update(file.digest for file in manifest_json.read(body, objects.location(info.key).uri).files)
    return named


def _now(objects: ObjectStore) -> float:
    """The time by the store's clock: ages are differences of its own times, whatever this machine's clock says."""
    name = f"clock/{uuid.uuid4().hex}"
    objects.put(name, b"")
    try:
        return objects.head(name).modified
    finally:
        objects.delete(name)
