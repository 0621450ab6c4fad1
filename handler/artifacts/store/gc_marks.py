"""Marks on unreferenced objects, so that garbage collection never deletes an object that a publisher relies on.

An unreferenced object is first marked. A later collection, at least `GRACE` seconds after that, deletes it if still no
manifest refers to it. A publisher reads the marks before it starts, and keeps the objects that it needs. So:

- An object that was marked before the publisher started is kept. The collector's claim fails, because it is
  conditional.
- An object that is marked later is not deleted for `GRACE`. By then the publisher's manifest refers to it. (A publisher
  that takes longer than half of `GRACE` reads the marks again.)
- If a collector has claimed the object, the publisher waits for its deletion and uploads the object again.

One case remains: a collector that pauses for more than `PATIENCE` between its claim and the delete that follows. The
entry then lacks an object. `verify` and every restore notice this.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from enum import StrEnum

import msgspec

from handler.artifacts.store import object_names
from handler.storage.object_store import ObjectInfo, ObjectStore
from handler.storage.storage_errors import Conflict, NotFound

# Longer than any publication takes; seconds.
GRACE = 6 * 3600.0
# How long a publisher waits for a claimed object to be deleted; seconds.
PATIENCE = 60.0


class MarkState(StrEnum):
    """An object is `MARKED` for deletion, `KEPT` by a publisher, or `CLAIMED` by a collector that deletes it now."""

    MARKED = "marked"
    KEPT = "kept"
    CLAIMED = "claimed"


class _Mark(msgspec.Struct):
    state: MarkState
    by: str


# Made at import: two threads that meet a type at the same time end the process (see `neff_store`).
_MARKS = msgspec.json.Decoder(_Mark)


class Marks:
    """The marks of one store, for one publisher or collector."""

    def __init__(self, objects: ObjectStore, sleep: Callable[[float], None] = time.sleep) -> None:
        self._objects, self._sleep = objects, sleep
        self._owner = uuid.uuid4().hex

    def all(self) -> dict[str, ObjectInfo]:
        """Returns every mark by the digest of its object."""
        marks = {object_names.digest_of(info.key): info for info in self._objects.list(object_names.GC_MARKS)}
        return {digest: info for digest, info in marks.items() if digest}

    def keep(self, digest: str) -> None:
        """Prevents the deletion of an object until it is found unreferenced again.

        Returns when the mark is changed, or when a faster collector has deleted the object.
        """
        waited = 0.0
        while True:
            try:
                mark, etag = self._get(digest)
                if mark.state is MarkState.CLAIMED and waited < PATIENCE:
                    self._sleep(1.0)
                    waited += 1.0
                    continue
                self._put(digest, MarkState.KEPT, if_match=etag)
                return
            except NotFound:
                return
            except Conflict:
                continue

    def mark(self, digest: str, mark: ObjectInfo | None) -> bool:
        """Marks an object for deletion, also one whose mark was `KEPT`. Returns False if another process was faster."""
        try:
            self._put(digest, MarkState.MARKED, if_absent=mark is None, if_match=mark.etag if mark else None)
        except Conflict:
            return False
        return True

    def claim(self, digest: str, mark: ObjectInfo) -> bool:
        """Returns whether this collector, and no other, may delete the object now."""
        try:
            current, etag = self._get(digest)
            if etag != mark.etag or current.state is MarkState.KEPT:
                return False
            self._put(digest, MarkState.CLAIMED, if_match=etag)
        except (NotFound, Conflict):
            return False
        return True

    def state(self, digest: str) -> MarkState | None:
        try:
            return self._get(digest)[0].state
        except NotFound:
            return None

    def remove(self, digest: str, mark: ObjectInfo | None = None) -> None:
        """Deletes a mark. If `mark` is given, only this version is deleted."""
        try:
            self._objects.delete(object_names.gc_mark_name(digest), if_match=mark.etag if mark else None)
        except Conflict:
            pass

    def _get(self, digest: str) -> tuple[_Mark, str]:
        body, etag = self._objects.get(object_names.gc_mark_name(digest), limit=4096)
        try:
            return _MARKS.decode(body), etag
        except msgspec.DecodeError:
            return _Mark(MarkState.KEPT, ""), etag  # an unreadable mark deletes nothing

    def _put(self, digest: str, state: MarkState, *, if_absent: bool = False, if_match: str | None = None) -> None:
        body = msgspec.json.encode(_Mark(state, self._owner))
        self._objects.put(object_names.gc_mark_name(digest), body, if_absent=if_absent, if_match=if_match)
