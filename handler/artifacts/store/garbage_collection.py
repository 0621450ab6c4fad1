"""Selects entries to delete by age and count, and deletes objects that no entry refers to any more.

`gc_marks` explains how an object is deleted safely while a publisher may need it.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass

from handler.artifacts.store import object_names
from handler.artifacts.store.gc_marks import GRACE, Marks, MarkState
from handler.artifacts.store.manifest import decode
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.object_store import ObjectInfo, ObjectStore, supports_conditions
from handler.storage.storage_errors import ConditionsIgnored, NotFound


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of a collection: deleted objects and their bytes, and objects marked for deletion by a later one.

    The temporary files of a store in a directory count as objects.
    """

    deleted: int = 0
    deleted_bytes: int = 0
    marked: int = 0


def expired(
    objects: ObjectStore, *, older_than: float | None = None, keep: int | None = None
) -> list[tuple[str, str, ObjectInfo]]:
    """Returns kind, key and manifest of the entries to delete. Pinned entries do not count.

    With both limits, an entry goes if it exceeds both. With none, none goes.

    :param older_than: the age in seconds since the publication, by the store's clock. Entries up to it are kept.
    :param keep: how many of the newest entries of each kind are kept, whatever their age.
    """
    pinned = {info.key.removeprefix(object_names.PINS) for info in objects.list(object_names.PINS)}
    entries = defaultdict(list)
    for info in objects.list(object_names.MANIFESTS):
        name = object_names.of_manifest(info.key)
        if name and "/".join(name) not in pinned:
            entries[name[0]].append((*name, info))
    if older_than is None and keep is None:
        return []
    now = _now(objects) if older_than is not None else 0.0
    return [
        entry
        for listed in entries.values()
        for entry in sorted(listed, key=lambda entry: entry[2].modified, reverse=True)[keep or 0 :]
        if older_than is None or now - entry[2].modified > older_than
    ]


def collect(objects: ObjectStore, grace: float = GRACE) -> Collected:
    """Deletes unreferenced objects that were marked at least `grace` seconds ago, and marks those that are not.

    So an object is deleted by the second collection after its entry. In a directory, the temporary files of killed
    writers are deleted as well, once they are that old. In S3 a lifecycle rule of the bucket does this.

    :raises InvalidManifest: a manifest cannot be read, so it is unknown what it refers to. Delete it first.
    :raises ConditionsIgnored: the store does not support conditional writes, which a claim needs.
    """
    if not supports_conditions(objects):
        raise ConditionsIgnored(objects.uri)
    marks = Marks(objects)
    now = _now(objects)
    # The order matters: marks, then objects, then manifests. An entry that is published in between is still seen.
    earlier = marks.all()
    listed = {
        digest: info for info in objects.list(object_names.OBJECTS) if (digest := object_names.digest_of(info.key))
    }
    referenced = _referenced(objects)
    deleted = deleted_bytes = marked = 0
    for digest, mark in earlier.items():
        if digest in referenced or digest not in listed:
            if now - mark.modified > grace:
                marks.remove(digest, mark)
        elif now - mark.modified >= grace:
            if marks.state(digest) is MarkState.KEPT:
                marked += marks.mark(digest, mark)
            elif marks.claim(digest, mark):
                objects.delete(object_names.object_name(digest))
                marks.remove(digest)
                deleted, deleted_bytes = deleted + 1, deleted_bytes + listed[digest].size
    for digest, info in listed.items():
        if digest not in referenced and digest not in earlier and now - info.modified >= grace:
            marked += marks.mark(digest, None)
    if isinstance(objects, DirectoryObjects):
        sizes = objects.delete_interrupted(now - grace)
        deleted, deleted_bytes = deleted + len(sizes), deleted_bytes + sum(sizes)
    return Collected(deleted, deleted_bytes, marked)


def _referenced(objects: ObjectStore) -> set[str]:
    """Returns every digest that a manifest refers to. Signatures do not matter: entries of other keys are kept, too."""
    referenced: set[str] = set()
    for info in objects.list(object_names.MANIFESTS):
        try:
            body, _ = objects.get(info.key)
        except NotFound:
            continue
        referenced.update(file.digest for file in decode(body, objects.location(info.key).uri).files)
    return referenced


def _now(objects: ObjectStore) -> float:
    """Returns the time by the store's clock. Ages are differences of the store's times, not of this machine's."""
    name = f"clock/{uuid.uuid4().hex}"
    objects.put(name, b"")
    try:
        return objects.head(name).modified
    finally:
        objects.delete(name)
