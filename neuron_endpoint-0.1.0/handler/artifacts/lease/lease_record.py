"""The content of a lease object."""

from __future__ import annotations

from enum import Enum

import msgspec

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
    fencing: int
    seconds: float
    acquired: float
    renewed: float
    renewals: int = 0
    released: bool = False

    def renewal(self, date: float, *, released: bool = False) -> LeaseRecord:
        """The next version."""
        return msgspec.structs.replace(self, renewed=date, renewals=self.renewals + 1, released=released)


# Made at import: two threads that meet a type at the same time end the process (see `neff_store`).
_RECORDS = msgspec.json.Decoder(LeaseRecord)


def read(body: bytes, seconds: float) -> LeaseRecord:
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
