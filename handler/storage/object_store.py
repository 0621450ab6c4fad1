"""The least that a place for objects must do: S3 and a directory both do it. Everything else is built on this."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from handler.storage.storage_errors import Conflict

# Small objects are read whole: manifests, leases, markers. A manifest of a terabyte takes some 5 MB.
SMALL = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object. `modified` in seconds since the epoch; `etag` is whatever the place compares versions by."""

    key: str
    size: int
    modified: float
    etag: str


@dataclass(frozen=True, slots=True)
class Location:
    """Where an object's bytes are: `key` in `bucket`, or the file `path`. Exactly one of the two is there."""

    uri: str
    bucket: str = ""
    key: str = ""
    path: Path | None = None


class ObjectStore(Protocol):
    """Keys are relative to the store's root. Errors are of `handler.storage.storage_errors`; any call may raise
    AccessDenied, KmsDenied, CredentialsRefused, BucketMissing or StoreUnavailable."""

    @property
    def uri(self) -> str:
        """The root, as a user writes it: `s3://bucket/prefix` or `file:///directory`."""
        ...

    def get(self, key: str, *, limit: int = SMALL) -> tuple[bytes, str]:
        """A small object whole, and its etag.

        :raises NotFound: there is none.
        :raises TooLarge: it has more than `limit` bytes; not more than that is ever held in memory.
        """
        ...

    def put(self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        """Writes a small object; returns its etag.

        A condition that fails because exactly this body is there already counts as written: that is how a request looks
        that was retried after its answer was lost. So a body that claims something must hold a name of its writer.

        :raises Conflict: a condition did not hold; `if_match` on an object that is gone is one.
        """
        ...

    def upload(self, key: str, path: Path) -> None:
        """Writes an object of any size from a file; it appears whole or not at all."""
        ...

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` on, as they come; `length` of them, or to the end.

        :raises NotFound: there is none.
        """
        ...

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Deletes an object; one that is not there is no error unless `if_match` is given.

        :raises Conflict: it is another version, or gone.
        """
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Every object whose key begins with `prefix`, sorted by key."""
        ...

    def head(self, key: str) -> ObjectInfo:
        """:raises NotFound: there is none."""
        ...

    def location(self, key: str) -> Location:
        """Where its bytes are, for those who read them in their own way; the object need not exist."""
        ...


def supports_conditions(objects: ObjectStore) -> bool:
    """Whether conditional writes are honoured: some servers that speak S3 ignore them, and a lease would be nobody's.

    Writes and deletes one small object. (Amazon S3, MinIO and moto honour them; rclone 1.75's `serve s3` does not.)
    """
    key = f"probe/{uuid.uuid4().hex}"
    objects.put(key, b"first", if_absent=True)
    try:
        objects.put(key, b"second", if_absent=True)
    except Conflict:
        return True
    finally:
        objects.delete(key)
    return False
