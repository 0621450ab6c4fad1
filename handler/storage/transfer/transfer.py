"""What a download is made of: files, their parts, and the interface of a source, in S3 or in a directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from handler.storage.object_store import Location

# Returns the location of the object with a digest: `ArtifactStore.object_location`.
Locate = Callable[[str], Location]


class TransferFile(Protocol):
    """A file of a store. `path` is relative to the directory that it is downloaded to, `size` is in bytes."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def digest(self) -> str:
        """Names the content. `Locate` finds the object by it."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a file, and its expected digest (BLAKE3), if the store has one. Offset and length are in bytes."""

    file: TransferFile
    offset: int
    length: int
    digest: str | None


class Interrupted(Exception):
    """A transfer failed with a temporary error. It is retried.

    :param reason: what happened, without the object's name.
    :param clock: the seconds by which this machine's clock is ahead of the server's, if that was the reason.
    """

    def __init__(self, reason: str, clock: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.clock = clock


class PartReader(Protocol):
    """One connection of one thread. Only `abort` may be called from another thread.

    `open` and `readinto` raise Interrupted for temporary errors, and `handler.storage.storage_errors` for others.
    """

    def open(self, file: TransferFile, offset: int, length: int, timeout: float) -> None:
        """Requests `length` bytes from `offset` on. `timeout` (seconds) holds for each wait for the server."""

    def readinto(self, buffer: memoryview) -> int:
        """Reads into the buffer. Returns 0 at the end of the body, also if the range is incomplete."""

    def abort(self) -> None:
        """Interrupts the current wait. The reader then raises Interrupted, or returns fewer bytes."""

    def close(self) -> None:
        """Closes the connection. The next `open` makes a new one."""


class TransferSource(Protocol):
    """A source of the objects of an entry."""

    def reader(self) -> PartReader:
        """Returns a new reader. Each thread has its own."""

    def uri(self, file: TransferFile) -> str:
        """Returns the URI of a file's object, for messages."""
