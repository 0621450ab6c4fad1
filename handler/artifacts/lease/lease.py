"""A lease on one object of a store. Of all contenders one holds it, for as long as it renews it.

The clocks of two machines are never compared. A contender considers a lease expired if it saw the same version of the
object for the lease's whole duration, by its own monotonic clock: from a reply that had the version to a later request
that still finds it. The holder counts from before it sent its last successful renewal, and considers its lease lost
`MARGIN` earlier. The store wrote that renewal after it was sent, and the contender saw it after it was written. So the
holder has always stopped before a contender takes over, provided that neither clock runs more than `MARGIN` faster or
slower than the other. The price: an instance that starts after the holder's death waits for a whole duration. The
store's times (`ObjectInfo.modified`) would save that wait, but they are in whole seconds and differ between its
servers.

Every write is conditional on the version that was seen, so only one of several contenders succeeds. The body of each
version is unique (holder, fencing number, number of the renewal), because S3's etag is a digest of the content. A
released lease stays as an object, so that fencing numbers only grow.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Protocol

import msgspec

from handler.artifacts.lease.compile_errors import LeaseLost
from handler.storage.object_store import ObjectStore
from handler.storage.storage_errors import ArtifactError, Conflict, NotFound, TooLarge

# Ends what `Clock.every` started. Returns when a running call has returned.
Cancel = Callable[[], None]


class Clock(Protocol):
    """A source of time. All times are in seconds."""

    def now(self) -> float:
        """Returns monotonic time, for durations on this machine. It is never compared with another machine's."""

    def date(self) -> float:
        """Returns this machine's time since the epoch."""

    def sleep(self, seconds: float) -> None: ...

    def every(self, seconds: float, call: Callable[[], None]) -> Cancel:
        """Calls a function in the background, each time `seconds` after its last call has returned."""


class RealClock:
    """This machine's clocks. Each `every` has a thread of its own."""

    def now(self) -> float:
        return time.monotonic()

    def date(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def every(self, seconds: float, call: Callable[[], None]) -> Cancel:
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(seconds):
                call()

        thread = threading.Thread(target=run, name="every", daemon=True)
        thread.start()

        def cancel() -> None:
            ended.set()
            thread.join()

        return cancel


SECONDS = 60.0
# The share of a duration by which a holder gives up before a contender takes over, and the renewals per duration.
MARGIN = 0.1
RENEWALS = 3
# Size limit in bytes. A larger object is not a lease and is not read.
LARGEST = 4096
# The longest duration in seconds. A record with more would block a fleet for too long.
LONGEST = 3600.0


class LeaseState(Enum):
    """The state of a lease as a contender sees it."""

    FREE = "free"
    HELD = "held"
    EXPIRED = "expired"


class LeaseRecord(msgspec.Struct, frozen=True):
    """One version of a lease.

    :param holder: the unique name of the process that holds it.
    :param machine, acquired, renewed: information for people; nothing depends on them. The times are seconds since the
        epoch by the holder's clock.
    :param fencing: one more than the fencing number of the last holder.
    :param seconds: the duration without renewal.
    :param renewals: makes each version different from the one before.
    """

    holder: str
    machine: str
    fencing: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    seconds: float
    acquired: float
    renewed: float
    renewals: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    released: bool = False

    def renewal(self, date: float, *, released: bool = False) -> LeaseRecord:
        """The next version."""
        return msgspec.structs.replace(self, renewed=date, renewals=self.renewals + 1, released=released)


# Made at import: two threads that meet a type at the same time end the process (see `neff_store`).
_RECORDS = msgspec.json.Decoder(LeaseRecord)


def read_record(body: bytes, seconds: float) -> LeaseRecord:
    """Decodes a record. An unreadable one counts as the lease of an unknown holder, which expires like any other.

    :param seconds: the duration of an unreadable lease.
    """
    try:
        record = _RECORDS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return LeaseRecord("", "unknown", 0, seconds, 0.0, 0.0)
    if not 0 < record.seconds <= LONGEST:
        return msgspec.structs.replace(record, seconds=min(max(record.seconds, 1.0), LONGEST))
    return record


class Contender:
    """Observes a lease and can acquire it.

    :param machine: the machine's name, for people who read the object.
    :param seconds: the duration of a lease that is acquired here. Leases of others have their own duration.
    """

    def __init__(
        self, objects: ObjectStore, name: str, clock: Clock, machine: str = "", seconds: float = SECONDS
    ) -> None:
        self.holder = uuid.uuid4().hex
        self._objects, self._name, self._clock = objects, name, clock
        self._machine, self._seconds = machine, seconds
        self._etag: str | None = None
        self._since = 0.0
        self.record: LeaseRecord | None = None

    def poll(self) -> LeaseState:
        """Reads the lease with one request. Returns whether it is free, held or expired, as far as is known by now."""
        sent = self._clock.now()
        try:
            body, etag = self._objects.get(self._name, limit=LARGEST)
            record = read_record(body, self._seconds)
        except NotFound:
            self._etag, self.record = None, None
            return LeaseState.FREE
        if etag != self._etag or self.record is None:
            self._etag, self.record, self._since = etag, record, self._clock.now()
        if record.released:
            return LeaseState.FREE
        return LeaseState.EXPIRED if sent - self._since >= record.seconds else LeaseState.HELD

    def acquire(self) -> Lease | None:
        """Tries to become the holder, based on what `poll` saw last. Returns None if another process was faster.

        :raises AccessDenied: this role may not write to the store.
        """
        fencing = self.record.fencing + 1 if self.record is not None else 1
        date = self._clock.date()
        record = LeaseRecord(self.holder, self._machine, fencing, self._seconds, acquired=date, renewed=date)
        sent = self._clock.now()
        try:
            etag = self._objects.put(
                self._name, msgspec.json.encode(record), if_absent=self._etag is None, if_match=self._etag
            )
        except Conflict:
            return None
        self._etag, self.record = None, None  # the next poll has to read the lease again
        return Lease(self._objects, self._name, self._clock, record, etag, sent)


class Lease:
    """A lease that this process acquired. It can be lost at any time: check `held`.

    `with lease.keep():` renews it within the block, and releases it at the end.
    """

    def __init__(
        self, objects: ObjectStore, name: str, clock: Clock, record: LeaseRecord, etag: str, sent: float
    ) -> None:
        self._objects, self._name, self._clock = objects, name, clock
        self._record, self._etag, self._sent = record, etag, sent
        self._lost = False
        self._cancel: Cancel = _nothing
        self._on_lost: Callable[[], None] = _nothing
        self._deadline = float("inf")
        self._problem = "it could not be renewed in time"

    @property
    def holder(self) -> str:
        """The unique name of this process in the lease."""
        return self._record.holder

    @property
    def fencing(self) -> int:
        """The fencing number. It grows with each holder of this lease."""
        return self._record.fencing

    @property
    def held(self) -> bool:
        """Whether this process holds the lease. False if another took it over, or if it was not renewed in time."""
        return not self._lost and self._clock.now() < self._sent + self._record.seconds * (1 - MARGIN)

    def keep(self, on_lost: Callable[[], None] = lambda: None, deadline: float = float("inf")) -> Lease:
        """Starts to renew the lease in the background.

        :param on_lost: called once, from the background, when another process has taken the lease over.
        :param deadline: monotonic seconds after which the lease is not renewed. So a process that hangs blocks nobody.
        """
        self._on_lost, self._deadline = on_lost, deadline
        self._cancel = self._clock.every(self._record.seconds / RENEWALS, self._renew_in_time)
        return self

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def confirm(self) -> None:
        """Renews the lease now, so that a whole duration remains: after the deadline, too, unless another has it.

        :raises LeaseLost: another process holds it, or the store could not be reached.
        """
        self._cancel()
        self._renew()
        if not self.held:
            raise self.lost()
        self._cancel = self._clock.every(self._record.seconds / RENEWALS, self._renew_in_time)

    def lost(self) -> LeaseLost:
        """Returns the error to raise if the lease is not held."""
        return LeaseLost(
            self._objects.location(self._name).uri, "another instance has it" if self._lost else self._problem
        )

    def release(self) -> None:
        """Releases the lease, so that the next contender gets it at once. If this fails, the others wait for expiry."""
        self._cancel()
        if self._lost:
            return
        try:
            self._write(released=True)
        except ArtifactError:
            pass

    def _renew_in_time(self) -> None:
        if self._clock.now() <= self._deadline:
            self._renew()

    def _renew(self) -> None:
        if self._lost:
            return
        try:
            self._write(released=False)
        except Conflict:
            self._adopt()
        except ArtifactError as error:  # the next renewal tries again; until then `held` tells the truth
            self._problem = f"it could not be renewed in time: {error.message}"

    def _write(self, *, released: bool) -> None:
        sent = self._clock.now()
        record = self._record.renewal(self._clock.date(), released=released)
        self._etag = self._objects.put(self._name, msgspec.json.encode(record), if_match=self._etag)
        self._record, self._sent = record, sent

    def _adopt(self) -> None:
        """Handles a changed version: another process took over, or the reply to our own renewal was lost."""
        try:
            body, etag = self._objects.get(self._name, limit=LARGEST)
            current = read_record(body, self._record.seconds)
            if (current.holder, current.fencing) == (self._record.holder, self._record.fencing):
                self._etag, self._record = etag, current  # the duration counts from the renewal that is sent now
                self._write(released=False)
                return
        except (NotFound, TooLarge, Conflict):
            pass
        except ArtifactError as error:
            self._problem = f"it could not be renewed in time: {error.message}"
            return
        self._lost = True
        self._on_lost()


def _nothing() -> None:
    pass
