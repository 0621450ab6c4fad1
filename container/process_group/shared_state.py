"""What the processes of one endpoint know of each other, in memory that they share.

Made by gunicorn's master and inherited by each process it starts: nothing to look up, nothing left behind. Every
number has one writer, except that the master notes down the end of a process; so nothing is locked but the places,
which are counted by all. That lock is the kernel's (fcntl): it goes with the process that held it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Final

CELL: Final = 8
REASON_BYTES: Final = 1024


class Leader(IntEnum):
    """How far the leader is. `JOIN`: the engine is up, and the front ends may come."""

    STARTING = 0
    JOIN = 1
    READY = 2
    DRAINING = 3
    FAILED = 4
    GONE = 5


class Member(IntEnum):
    """A front end's life. `GONE`: its process has ended. `RELEASED`: and the engine knows."""

    NONE = 0
    STARTING = 1
    SERVING = 2
    GONE = 3
    RELEASED = 4


class SharedState:
    """One for each leader. The leader's seat is 0, the front ends have the others, each used once.

    :param seats: the leader's among them.
    """

    # Cells before the seats', and those of a seat.
    _LEADER, _PLACES, _TROUBLE, _ADAPTERS, _FULL, _HEAD = range(6)
    _STATE, _IN_FLIGHT, _UNFINISHED, _CONNECTIONS, _SEAT = range(5)

    def __init__(self, seats: int) -> None:
        self.seats = seats
        cells = self._HEAD + seats * self._SEAT
        self._file = os.memfd_create("endpoint-board")
        os.ftruncate(self._file, cells * CELL + REASON_BYTES)
        self._memory = mmap.mmap(self._file, cells * CELL + REASON_BYTES)
        self._cells = memoryview(self._memory)[: cells * CELL].cast("q")
        self._text = memoryview(self._memory)[cells * CELL :]

    @property
    def leader(self) -> Leader:
        return Leader(self._cells[self._LEADER])

    @leader.setter
    def leader(self, state: Leader) -> None:
        self._cells[self._LEADER] = state

    @property
    def places(self) -> int:
        """Requests that may be in flight in all processes together."""
        return self._cells[self._PLACES]

    @places.setter
    def places(self, places: int) -> None:
        self._cells[self._PLACES] = places

    @property
    def trouble(self) -> bool:
        """The leader knows of trouble with the hardware; `reason` says which."""
        return bool(self._cells[self._TROUBLE])

    @trouble.setter
    def trouble(self, trouble: bool) -> None:
        self._cells[self._TROUBLE] = trouble

    @property
    def adapters(self) -> int:
        """Counts the changes of what adapters there are."""
        return self._cells[self._ADAPTERS]

    @adapters.setter
    def adapters(self, change: int) -> None:
        self._cells[self._ADAPTERS] = change

    @property
    def full(self) -> bool:
        """There was no seat left for another front end."""
        return bool(self._cells[self._FULL])

    @property
    def reason(self) -> str:
        """Why the leader failed."""
        return bytes(self._text).partition(b"\0")[0].decode("utf-8", "replace")

    @reason.setter
    def reason(self, text: str) -> None:
        data = text.encode()[: REASON_BYTES - 1]
        self._text[: len(data) + 1] = data + b"\0"

    def take_seat(self) -> int | None:
        """A seat for another front end; None when all were used. In the master."""
        for seat in range(1, self.seats):
            if self.member(seat) is Member.NONE:
                self.set_member(seat, Member.STARTING)
                return seat
        self._cells[self._FULL] = 1
        return None

    def member(self, seat: int) -> Member:
        return Member(self._cells[self._cell(seat, self._STATE)])

    def set_member(self, seat: int, state: Member) -> None:
        self._cells[self._cell(seat, self._STATE)] = state

    def members(self, state: Member) -> list[int]:
        return [seat for seat in range(1, self.seats) if self.member(seat) is state]

    def enter(self, seat: int) -> bool:
        """Takes a place for a request of this seat; False where all are taken. One thread of a process at a time."""
        with self._locked():
            if self.in_flight() >= self.places:
                return False
            self._cells[self._cell(seat, self._IN_FLIGHT)] += 1
            return True

    def leave(self, seat: int) -> None:
        """Gives the place back. One thread of a process at a time."""
        with self._locked():
            self._cells[self._cell(seat, self._IN_FLIGHT)] -= 1

    def in_flight(self) -> int:
        return sum(self._cells[self._cell(seat, self._IN_FLIGHT)] for seat in range(self.seats))

    def note_unfinished(self, seat: int, requests: int) -> None:
        """How many of the engine's requests are this seat's."""
        self._cells[self._cell(seat, self._UNFINISHED)] = requests

    def unfinished(self) -> int:
        return sum(self._cells[self._cell(seat, self._UNFINISHED)] for seat in range(self.seats))

    def note_connections(self, seat: int, connections: int) -> None:
        """How many a front end holds open."""
        self._cells[self._cell(seat, self._CONNECTIONS)] = connections

    def fewest_connections(self, seat: int) -> int | None:
        """Of the other front ends that serve; None where there is none."""
        others = [
            self._cells[self._cell(other, self._CONNECTIONS)] for other in self.members(Member.SERVING) if other != seat
        ]
        return min(others, default=None)

    def clear(self, seat: int) -> None:
        """Gives back what a front end that has ended held."""
        with self._locked():
            self._cells[self._cell(seat, self._IN_FLIGHT)] = 0
        self.note_unfinished(seat, 0)
        self.set_member(seat, Member.RELEASED)

    def _cell(self, seat: int, which: int) -> int:
        return self._HEAD + seat * self._SEAT + which

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)
