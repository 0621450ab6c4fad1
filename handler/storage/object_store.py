"""The interface of an object store. `S3Objects` and `DirectoryObjects` implement it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from handler.storage.storage_errors import Conflict, NotFound

# Size limit for objects that are read into memory: manifests, leases, marks. The manifest of a terabyte has about 5 MB.
SMALL = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object. `modified` is in seconds since the epoch. `etag` identifies the version."""

    key: str
    size: int
    modified: float
    etag: str


@dataclass(frozen=True, slots=True)
class Location:
    """Where an object's bytes are: either `bucket` and `key`, or the file `path`. An `etag` names the only version."""

    uri: str
    bucket: str = ""
    key: str = ""
    path: Path | None = None
    etag: str = ""


class ObjectStore(Protocol):
    """An object store. Keys are relative to its root.

    Every call may raise AccessDenied, KmsDenied, CredentialsRefused, BucketMissing or StoreUnavailable
    (`handler.storage.storage_errors`).
    """

    @property
    def uri(self) -> str:
        """The root as a URI: `s3://bucket/prefix` or `file:///directory`."""

    def get(self, key: str, *, limit: int = SMALL) -> tuple[bytes, str]:
        """Returns the content and the etag of a small object.

        :raises NotFound: there is no such object.
        :raises TooLarge: it has more than `limit` bytes. No more than that is ever held in memory.
        """

    def put(self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        """Writes a small object and returns its etag.

        If a condition fails but the object already has exactly this body, the write counts as done: a request that is
        retried after its reply was lost looks like this. So a body that claims something must name its writer.

        :raises Conflict: a condition did not hold. `if_match` on a deleted object is a conflict, too.
        """

    def upload(self, key: str, path: Path) -> None:
        """Writes an object of any size from a file. It appears complete or not at all."""

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yields the bytes from `start` on in chunks: `length` bytes, or up to the end.

        :raises NotFound: there is no such object.
        """

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Deletes an object. A missing object is an error only with `if_match`.

        :raises Conflict: the object has another etag than `if_match`, or is missing.
        """

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yields every object whose key begins with `prefix`, sorted by key."""

    def head(self, key: str) -> ObjectInfo:
        """:raises NotFound: there is no such object."""

    def location(self, key: str) -> Location:
        """Returns where the bytes of an object are, for code that reads them itself. The object need not exist."""


def size_of(objects: ObjectStore, key: str) -> int | None:
    """Returns the size of an object in bytes. None if it does not exist."""
    try:
        return objects.head(key).size
    except NotFound:
        return None


def supports_conditions(objects: ObjectStore) -> bool:
    """Whether the store supports conditional writes. Some S3-compatible servers ignore the conditions.

    Writes and deletes one small object. Amazon S3, MinIO and moto support them; rclone 1.75's `serve s3` does not.
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
