"""A lease on one object of a store: of all who want it, one holds it, for as long as it keeps renewing it.

No two clocks are ever compared. A watcher takes a lease to have expired when it has seen the very same version of the
object for the lease's whole duration, by its own monotonic clock, between an answer that had it and a later question
that still finds it. A holder counts from before it sent the renewal that succeeded last, and stops believing in its
lease `MARGIN` earlier. Since the store wrote that renewal after it was sent, and the watcher saw it after it was
written, the holder has always stopped when the watcher begins, provided that neither clock runs more than `MARGIN`
faster or slower than the other. The price: who arrives after a holder's death waits for a whole duration. Times of the
store (`ObjectInfo.modified`) would save that wait, but come in whole seconds and from whichever of its servers answers.

Every change of the object is conditional on the version that was seen, so of many thieves one succeeds. Each version's
body is unlike every other (holder, fencing number, number of the renewal): S3's etag is a digest of the content. A
released lease stays as an object, so that fencing numbers only ever grow.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import msgspec

from handler.artifacts.lease.clock import Cancel, Clock
from handler.artifacts.lease.compile_errors import LeaseLost
from handler.artifacts.lease.lease_record import LARGEST, LeaseRecord, LeaseState, read
from handler.storage.object_store import ObjectStore
from handler.storage.storage_errors import ArtifactError, Conflict, NotFound, TooLarge

SECONDS = 60.0
# Of a duration: how much earlier a holder gives up than a watcher takes over, and how often it renews.
MARGIN = 0.1
RENEWALS = 3


class Contender:
    """One who watches a lease and may take it.

    :param machine: for people who read the object.
    :param seconds: the duration of a lease that is taken here; others' have their own.
    """

    def __init__(
        self, objects: ObjectStore, name: str, timing: Clock, machine: str = "", seconds: float = SECONDS
    ) -> None:
        self.holder = uuid.uuid4().hex
        self._objects, self._name, self._timing = objects, name, timing
        self._machine, self._seconds = machine, seconds
        self._etag: str | None = None
        self._since = 0.0
        self.record: LeaseRecord | None = None

    def look(self) -> LeaseState:
        """One request: whether the lease is free, held or expired, as far as can be known by now."""
        asked = self._timing.now()
        try:
            body, etag = self._objects.get(self._name, limit=LARGEST)
            record = read(body, self._seconds)
        except NotFound:
            self._etag, self.record = None, None
            return LeaseState.FREE
        if etag != self._etag or self.record is None:
            self._etag, self.record, self._since = etag, record, self._timing.now()
        if record.released:
            return LeaseState.FREE
        return LeaseState.EXPIRED if asked - self._since >= record.seconds else LeaseState.HELD

    def take(self) -> Lease | None:
        """Tries to become the holder, of what `look` saw last; None when somebody else was faster.

        :raises AccessDenied: this role may not write to the store.
        """
        fencing = self.record.fencing + 1 if self.record is not None else 1
        date = self._timing.date()
        record = LeaseRecord(self.holder, self._machine, fencing, self._seconds, acquired=date, renewed=date)
        sent = self._timing.now()
        try:
            etag = self._objects.put(
                self._name, msgspec.json.encode(record), if_absent=self._etag is None, if_match=self._etag
            )
        except Conflict:
            return None
        self._etag, self.record = None, None  # whatever comes of it has to be looked at anew
        return Lease(self._objects, self._name, self._timing, record, etag, sent)


class Lease:
    """A lease that this process took. `held` is what counts: a lease can be lost at any time."""

    def __init__(
        self, objects: ObjectStore, name: str, timing: Clock, record: LeaseRecord, etag: str, sent: float
    ) -> None:
        self._objects, self._name, self._timing = objects, name, timing
        self._record, self._etag, self._sent = record, etag, sent
        self._lost = False
        self._cancel: Cancel = _nothing
        self._on_lost: Callable[[], None] = _nothing
        self._until = float("inf")

    @property
    def holder(self) -> str:
        """This process's name in the lease, unlike any other's."""
        return self._record.holder

    @property
    def fencing(self) -> int:
        """Grows with each holder of this lease."""
        return self._record.fencing

    @property
    def held(self) -> bool:
        """False once another has taken it, and while it was not renewed in time (it may still be ours then)."""
        return not self._lost and self._timing.now() < self._sent + self._record.seconds * (1 - MARGIN)

    def keep(self, on_lost: Callable[[], None] = lambda: None, until: float = float("inf")) -> None:
        """Renews in the background from now on.

        :param on_lost: called once, from the background, when another has taken it.
        :param until: monotonic seconds after which no more renewals are made, so that one who hangs blocks nobody.
        """
        self._on_lost, self._until = on_lost, until
        self._cancel = self._timing.every(self._record.seconds / RENEWALS, self._renew)

    def confirm(self) -> None:
        """Renews at once, so that a whole duration lies ahead.

        :raises LeaseLost: another has it, or the store could not be asked.
        """
        self._cancel()
        self._renew()
        if not self.held:
            raise self.lost()
        self._cancel = self._timing.every(self._record.seconds / RENEWALS, self._renew)

    def lost(self) -> LeaseLost:
        """The error to raise when it is not held."""
        return LeaseLost(self._objects.location(self._name).uri, "another instance has it" if self._lost else "")

    def release(self) -> None:
        """Lets the next one have it at once. What goes wrong here only costs the others the wait for its expiry."""
        self._cancel()
        if self._lost:
            return
        try:
            self._write(released=True)
        except ArtifactError:
            pass

    def _renew(self) -> None:
        if self._lost or self._timing.now() > self._until:
            return
        try:
            self._write(released=False)
        except Conflict:
            self._adopt()
        except ArtifactError:
            pass  # tried again at the next renewal; until then `held` tells

    def _write(self, *, released: bool) -> None:
        sent = self._timing.now()
        record = self._record.renewal(self._timing.date(), released=released)
        self._etag = self._objects.put(self._name, msgspec.json.encode(record), if_match=self._etag)
        self._record, self._sent = record, sent

    def _adopt(self) -> None:
        """The version that we know is gone: another's theft, or a renewal of ours whose answer was lost."""
        try:
            body, etag = self._objects.get(self._name, limit=LARGEST)
            found = read(body, self._record.seconds)
            if (found.holder, found.fencing) == (self._record.holder, self._record.fencing):
                self._etag, self._record = etag, found  # it counts from the next renewal on, which is sent now
                self._write(released=False)
                return
        except (NotFound, TooLarge, Conflict):
            pass
        except ArtifactError:
            return
        self._lost = True
        self._on_lost()


def _nothing() -> None:
    pass
