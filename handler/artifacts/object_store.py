"""The least that a place for objects must do: S3 and a directory both do it. Everything else is built on this."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object. `modified` in seconds since the epoch; `etag` is whatever the place compares versions by."""

    key: str
    size: int
    modified: float
    etag: str


class ObjectStore(Protocol):
    """Keys are relative to the store's root. Errors are of `handler.artifacts.errors`."""

    def get(self, key: str) -> tuple[bytes, str]:
        """A small object whole, and its etag. :raises NotFound: there is none."""
        ...

    def put(self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        """Writes a small object; returns its etag. :raises Conflict: a condition did not hold."""
        ...

    def delete(self, key: str, *, if_match: str | None = None) -> None: ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]: ...

    def head(self, key: str) -> ObjectInfo:
        """:raises NotFound: there is none."""
        ...
