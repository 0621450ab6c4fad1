"""A part of a file, as one connection downloads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


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
