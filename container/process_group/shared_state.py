"""State that the processes of one endpoint share, in shared memory.

gunicorn's master makes it and every process that the master starts inherits it. So it needs no name, and nothing stays
behind. Each number has one writer, except that the master records the end of a process. Only the requests in flight are
counted by all processes, under a lock. The lock is the kernel's (fcntl), which releases it when its holder ends.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Final, Generic, TypeVar

CELL: Final = 8
REASON_BYTES: Final = 1024
Number = TypeVar("Number", bound=int)


class Leader(IntEnum):
    """The state of the leader. `JOIN`: the engine is up, and the front ends may join it."""

    STARTING = 0
    JOIN = 1
    READY = 2
    DRAINING = 3
    FAILED = 4
    GONE = 5


class Member(IntEnum):
    """The state of a front end. `GONE`: its process has ended. `RELEASED`: the engine has freed its requests."""

    NONE = 0
    STARTING = 1
    SERVING = 2
    GONE = 3
    RELEASED = 4


class SharedNumber(Generic[Number]):
    """An attribute of `SharedState`: one of the cells that all slots share."""

    def __init__(self, index: int, kind: Callable[[int], Number]) -> None:
        self._index, self._kind = index, kind

    def __get__(self, state: SharedState, owner: object) -> Number:
        return self._kind(state.cells[self._index])

    def __set__(self, state: SharedState, value: Number) -> None:
        state.cells[self._index] = value


class SharedState:
    """The shared state of one leader and its front ends.

    Each process has a slot. The leader's is 0. A front end's slot is never used again.

    :param slots: number of slots, the leader's included.
    :ivar max_in_flight: the limit of requests in flight, over all processes.
    :ivar hardware_failed: the hardware has failed; `reason` describes the failure.
    :ivar adapters: counts the changes to the list of adapters.
    :ivar full: a front end was started when no slot was left.
    """

    leader = SharedNumber(0, Leader)
    max_in_flight = SharedNumber(1, int)
    hardware_failed = SharedNumber(2, bool)
    adapters = SharedNumber(3, int)
    full = SharedNumber(4, bool)
    # The number of the cells above, then the indexes of the cells of each slot.
    _HEAD: Final = 5
    _STATE, _IN_FLIGHT, _UNFINISHED, _CONNECTIONS, _SLOT_CELLS = range(5)

    def __init__(self, slots: int) -> None:
        self.slots = slots
        cells = self._HEAD + slots * self._SLOT_CELLS
        self._file = os.memfd_create("endpoint-shared-state")
        os.ftruncate(self._file, cells * CELL + REASON_BYTES)
        self._memory = mmap.mmap(self._file, cells * CELL + REASON_BYTES)
        self.cells = memoryview(self._memory)[: cells * CELL].cast("q")
        self._text = memoryview(self._memory)[cells * CELL :]

    @property
    def reason(self) -> str:
        """Why the leader failed."""
        return bytes(self._text).partition(b"\0")[0].decode("utf-8", "replace")

    @reason.setter
    def reason(self, text: str) -> None:
        data = text.encode()[: REASON_BYTES - 1]
        self._text[: len(data) + 1] = data + b"\0"

    def take_slot(self) -> int | None:
        """Assigns a slot to a new front end. None: all have been used. Called in the master."""
        for slot in range(1, self.slots):
            if self.member(slot) is Member.NONE:
                self.set_member(slot, Member.STARTING)
                return slot
        self.full = True
        return None

    def member(self, slot: int) -> Member:
        return Member(self.cells[self._cell(slot, self._STATE)])

    def set_member(self, slot: int, state: Member) -> None:
        self.cells[self._cell(slot, self._STATE)] = state

    def members(self, state: Member) -> list[int]:
        return [slot for slot in range(1, self.slots) if self.member(slot) is state]

    def enter(self, slot: int) -> bool:
        """Counts a request of this slot in. False: the limit is reached. Never called by two threads at a time."""
        with self._locked():
            if self.in_flight() >= self.max_in_flight:
                return False
            self.cells[self._cell(slot, self._IN_FLIGHT)] += 1
            return True

    def leave(self, slot: int) -> None:
        """Counts a request of this slot out. Never called by two threads at a time."""
        with self._locked():
            self.cells[self._cell(slot, self._IN_FLIGHT)] -= 1

    def in_flight(self) -> int:
        return sum(self.cells[self._cell(slot, self._IN_FLIGHT)] for slot in range(self.slots))

    def set_unfinished(self, slot: int, requests: int) -> None:
        """Sets how many requests in the engine belong to this slot."""
        self.cells[self._cell(slot, self._UNFINISHED)] = requests

    def unfinished(self) -> int:
        return sum(self.cells[self._cell(slot, self._UNFINISHED)] for slot in range(self.slots))

    def set_connections(self, slot: int, connections: int) -> None:
        """Sets how many connections a front end has open."""
        self.cells[self._cell(slot, self._CONNECTIONS)] = connections

    def fewest_connections(self, slot: int) -> int | None:
        """The lowest number of connections among the other serving front ends; None if there are none."""
        others = [
            self.cells[self._cell(other, self._CONNECTIONS)] for other in self.members(Member.SERVING) if other != slot
        ]
        return min(others, default=None)

    def clear(self, slot: int) -> None:
        """Frees what a front end that has ended still held."""
        with self._locked():
            self.cells[self._cell(slot, self._IN_FLIGHT)] = 0
        self.set_unfinished(slot, 0)
        self.set_member(slot, Member.RELEASED)

    def _cell(self, slot: int, which: int) -> int:
        return self._HEAD + slot * self._SLOT_CELLS + which

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)
