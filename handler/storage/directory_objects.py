"""An object store in a directory: for a laptop, a shared file system, and the tests.

A write goes to a temporary file first, so that readers never see a partial object. Conditions are checked under a lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from handler.regular_files import open_regular
from handler.storage.object_store import SMALL, Location, ObjectInfo
from handler.storage.safe_paths import confined
from handler.storage.storage_errors import (
    AccessDenied,
    Conflict,
    NotFound,
    StoreUnavailable,
    StoreUnusable,
    TooLarge,
)

CHUNK = 1024 * 1024
# Holds the temporary files and the lock. Listings skip it.
WORK, LOCK = ".work", "lock"
# Errors that do not pass: no room, and a file system without locks.
LASTING = frozenset((errno.ENOSPC, errno.EDQUOT, errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP))


class DirectoryObjects:
    """Implements `ObjectStore` with files. The etag is inode, size and modification time; a write makes a new file."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def uri(self) -> str:
        return self.root.absolute().as_uri()

    def location(self, key: str) -> Location:
        path = self._path(key)
        return Location(path.absolute().as_uri(), path=path)

    def get(self, key: str, *, limit: int = SMALL) -> tuple[bytes, str]:
        with self._errors(key, "read"), open_regular(self._path(key)) as file:
            status = os.fstat(file.fileno())
            if status.st_size > limit:
                raise TooLarge(str(self._path(key)), status.st_size, limit)
            return file.read(limit), _etag(status)

    def put(self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        path = self._path(key)
        with self._errors(key, "write"), self._temporary() as temporary:
            temporary.write_bytes(body)
            etag = _etag(temporary.stat())
            with self._locked():
                if if_absent and path.exists():
                    raise Conflict(str(path))
                self._require(path, if_match)
                _move(temporary, path)
            return etag

    def upload(self, key: str, path: Path) -> None:
        with self._errors(key, "write"), self._temporary() as temporary:
            shutil.copyfile(path, temporary)
            _move(temporary, self._path(key))

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        with self._errors(key, "read"), open_regular(self._path(key)) as file:
            file.seek(start)
            left = length
            while chunk := file.read(CHUNK if left is None else min(CHUNK, left)):
                yield chunk
                left = None if left is None else left - len(chunk)

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        path = self._path(key)
        with self._errors(key, "write"), self._locked():
            self._require(path, if_match)
            path.unlink(missing_ok=True)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        below = self.root / prefix.rpartition("/")[0]
        keys: list[str] = []
        with self._errors(prefix, "read"):
            for directory, names, files in os.walk(below, onerror=_raise_unless_gone):
                names[:] = [name for name in names if name != WORK]
                keys += [Path(directory, name).relative_to(self.root).as_posix() for name in files]
        for key in sorted(keys):
            if key.startswith(prefix):
                try:
                    yield self.head(key)
                except NotFound:
                    continue  # deleted after it was listed

    def head(self, key: str) -> ObjectInfo:
        with self._errors(key, "read"):
            status = self._path(key).stat()
            return ObjectInfo(key, status.st_size, status.st_mtime, _etag(status))

    def delete_interrupted(self, before: float) -> tuple[int, ...]:
        """Deletes the temporary files of writers that were killed. Returns their sizes.

        :param before: seconds since the epoch, by the file system's clock. Files that were written to since then stay.
        """
        sizes: list[int] = []
        with self._errors(WORK, "write"):
            for path in self._work().iterdir():
                try:
                    status = path.stat()
                    if path.name != LOCK and status.st_mtime <= before:
                        path.unlink()
                        sizes.append(status.st_size)
                except FileNotFoundError:
                    continue  # its writer has finished in the meantime
        return tuple(sizes)

    def _path(self, key: str) -> Path:
        return self.root / confined(key)

    def _require(self, path: Path, etag: str | None) -> None:
        """:raises Conflict: the file does not have this etag."""
        if etag is not None and not (path.exists() and _etag(path.stat()) == etag):
            raise Conflict(str(path))

    def _work(self) -> Path:
        work = self.root / WORK
        work.mkdir(parents=True, exist_ok=True)
        return work

    @contextmanager
    def _temporary(self) -> Iterator[Path]:
        """A new file. It has the mode that the umask gives, and not 0600 as `mkstemp`: other users may read a store."""
        temporary = self._work() / uuid.uuid4().hex
        temporary.touch(exist_ok=False)
        try:
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lets one writer at a time, of all processes and threads, check a condition. Held for as long as a rename."""
        with open(self._work() / LOCK, "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _errors(self, key: str, what: str) -> Iterator[None]:
        where = str(self.root / key)
        try:
            yield
        except (FileNotFoundError, IsADirectoryError):
            raise NotFound(where) from None
        except OSError as error:
            if isinstance(error, PermissionError) or error.errno == errno.EROFS:
                raise AccessDenied(where, f"this user to {what} it", error.strerror or "") from error
            if error.errno in LASTING:
                raise StoreUnusable(where, error.strerror or "") from error
            raise StoreUnavailable(where, error.strerror or type(error).__name__) from error


def _move(temporary: Path, path: Path) -> None:
    """Syncs the file to disk before it gets its name: a manifest must not survive a crash that its objects do not."""
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.rename(path)


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"
