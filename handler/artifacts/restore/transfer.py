"""How the bytes of objects come here: what a restore needs of a place, whether S3 or a directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from handler.artifacts.store.manifest import FileEntry
from handler.storage.object_store import Location

# From a file's digest to where its object is: `Store.object_location`.
Locate = Callable[[str], Location]


class Interrupted(Exception):
    """A transfer broke off in a way that may pass: it is tried again.

    :param reason: what happened, without the object's name.
    :param clock: seconds by which this machine's clock is ahead of the server's, when that was the reason.
    """

    def __init__(self, reason: str, clock: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.clock = clock


class PartReader(Protocol):
    """One connection, of one thread. Only `abort` may be called from another.

    `open` and `readinto` raise Interrupted for what may pass, and `handler.storage.storage_errors` for what will not.
    """

    def open(self, file: FileEntry, offset: int, length: int, timeout: float) -> None:
        """Asks for `length` bytes from `offset` on. `timeout` (seconds) is for each wait on the other side."""
        ...

    def readinto(self, buffer: memoryview) -> int:
        """Fills the buffer as far as the range goes; 0 when nothing more comes, whether or not it is complete."""
        ...

    def abort(self) -> None:
        """Breaks off whatever the reader waits for; it then raises, or ends short."""
        ...

    def close(self) -> None:
        """Gives the connection up; the next `open` makes a new one."""
        ...


class TransferSource(Protocol):
    """A place that holds the objects of an entry."""

    def reader(self) -> PartReader:
        """A reader of its own for each thread."""
        ...

    def uri(self, file: FileEntry) -> str:
        """The object's name, for messages."""
        ...
