"""Marks on objects that nobody names any more, so that a collector never takes what a publisher counts on.

An object is not deleted when it is found unneeded but condemned, and deleted by a later collection, `GRACE` after that,
if no manifest names it then. A publisher looks for marks before it begins: what it needs it spares. So

- what is condemned before it begins, it spares; the collector's claim then fails, for claims are conditional;
- what is condemned after it began is not deleted for `GRACE`, and by then its manifest names it (a publisher that takes
  longer than half of `GRACE` looks again);
- what a collector has claimed it waits for, and uploads again.

What is left: a collector that stands still for more than `PATIENCE` between its claim and the delete that follows it at
once. The entry then lacks an object, which `verify` and every restore notice.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from enum import StrEnum

import msgspec

from handler.artifacts.store import object_names as layout
from handler.storage.object_store import ObjectInfo, ObjectStore
from handler.storage.storage_errors import Conflict, NotFound

# Longer than any publication; seconds.
GRACE = 6 * 3600.0
# How long a publisher waits for a claimed object to go; seconds.
PATIENCE = 60.0


class MarkState(StrEnum):
    CONDEMNED = "condemned"
    SPARED = "spared"
    CLAIMED = "claimed"


class _Mark(msgspec.Struct):
    state: MarkState
    by: str


class Marks:
    """The marks of one store, as one publisher or collector sees them."""

    def __init__(self, objects: ObjectStore, sleep: Callable[[float], None] = time.sleep) -> None:
        self._objects, self._sleep = objects, sleep
        self._me = uuid.uuid4().hex

    def all(self) -> dict[str, ObjectInfo]:
        """Every mark, by the digest that it is for."""
        marks = {layout.digest_of(info.key): info for info in self._objects.list(layout.CONDEMNED)}
        return {digest: info for digest, info in marks.items() if digest}

    def condemned(self) -> set[str]:
        return set(self.all())

    def spare(self, digest: str) -> None:
        """Makes sure that no collector deletes an object from now on, unless it is found unneeded again.

        Returns when the mark is changed, or when a collector that was first has deleted the object.
        """
        waited = 0.0
        while True:
            try:
                mark, etag = self._get(digest)
                if mark.state is MarkState.CLAIMED and waited < PATIENCE:
                    self._sleep(1.0)
                    waited += 1.0
                    continue
                self._put(digest, MarkState.SPARED, if_match=etag)
                return
            except NotFound:
                return
            except Conflict:
                continue

    def condemn(self, digest: str, mark: ObjectInfo | None) -> bool:
        """Marks an object, or renews a spared one's mark; False when somebody was faster."""
        try:
            if mark is None:
                self._put(digest, MarkState.CONDEMNED, if_absent=True)
            else:
                self._put(digest, MarkState.CONDEMNED, if_match=mark.etag)
        except Conflict:
            return False
        return True

    def claim(self, digest: str, mark: ObjectInfo) -> bool:
        """Whether this collector, and nobody else, may delete the object now."""
        try:
            found, etag = self._get(digest)
            if etag != mark.etag or found.state is MarkState.SPARED:
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
        """Takes a mark away; of the version `mark` only, when one is given."""
        try:
            self._objects.delete(layout.condemned_name(digest), if_match=mark.etag if mark else None)
        except Conflict:
            pass

    def _get(self, digest: str) -> tuple[_Mark, str]:
        body, etag = self._objects.get(layout.condemned_name(digest), limit=4096)
        try:
            return msgspec.json.decode(body, type=_Mark), etag
        except msgspec.DecodeError:
            return _Mark(MarkState.SPARED, ""), etag  # not ours: nothing is deleted because of it

    def _put(self, digest: str, state: MarkState, *, if_absent: bool = False, if_match: str | None = None) -> None:
        body = msgspec.json.encode(_Mark(state, self._me))
        self._objects.put(layout.condemned_name(digest), body, if_absent=if_absent, if_match=if_match)
