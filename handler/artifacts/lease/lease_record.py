"""What the object of a lease holds."""

from __future__ import annotations

from enum import Enum

import msgspec

# Larger than any lease; whatever else lies there is not read.
LARGEST = 4096
# A record that asks for more would block a fleet for longer than anybody means to. Seconds.
LONGEST = 3600.0


class LeaseState(Enum):
    """A lease as a watcher sees it."""

    FREE = "free"
    HELD = "held"
    EXPIRED = "expired"


class LeaseRecord(msgspec.Struct, frozen=True):
    """One version of a lease.

    :param holder: who holds it; one process, never used again.
    :param machine, acquired, renewed: for people: nothing is decided by them. Seconds since the epoch, the holder's.
    :param fencing: one more than the last holder's.
    :param seconds: how long it lasts unless it is renewed.
    :param renewals: makes each version unlike the one before.
    """

    holder: str
    machine: str
    fencing: int
    seconds: float
    acquired: float
    renewed: float
    renewals: int = 0
    released: bool = False

    def renewal(self, date: float, *, released: bool = False) -> LeaseRecord:
        """The next version."""
        return msgspec.structs.replace(self, renewed=date, renewals=self.renewals + 1, released=released)


def read(body: bytes, seconds: float) -> LeaseRecord:
    """A record; what cannot be read counts as a lease of a stranger, which expires like any other.

    :param seconds: the duration to assume for one that cannot be read.
    """
    try:
        record = msgspec.json.decode(body, type=LeaseRecord)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return LeaseRecord("", "unknown", 0, seconds, 0.0, 0.0)
    if not 0 < record.seconds <= LONGEST:
        return msgspec.structs.replace(record, seconds=min(max(record.seconds, 1.0), LONGEST))
    return record
