"""Reads the objects of a store in a directory (`file://`)."""

from __future__ import annotations

import os

from handler.storage.storage_errors import AccessDenied, NotFound
from handler.storage.transfer.transfer import Interrupted, Locate, TransferFile


class DirectorySource:
    """A `TransferSource` over a directory."""

    def __init__(self, locate: Locate) -> None:
        self._locate = locate

    def reader(self) -> DirectoryReader:
        return DirectoryReader(self)

    def uri(self, file: TransferFile) -> str:
        return self._locate(file.digest).uri

    def open(self, file: TransferFile) -> int:
        path = self._locate(file.digest).path
        assert path is not None, "a store in a directory locates its objects by path"
        try:
            return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, IsADirectoryError):
            raise NotFound(str(path)) from None
        except PermissionError as error:
            raise AccessDenied(str(path), "this user to read it", error.strerror or "") from error
        except OSError as error:
            raise Interrupted(f"{error.strerror}") from error


class DirectoryReader:
    """A `PartReader` over a file. A read from a disk cannot be interrupted: `abort` only ends the next one."""

    def __init__(self, source: DirectorySource) -> None:
        self._source = source
        self._descriptor: int | None = None
        self._position = self._left = 0
        self._aborted = False

    def open(self, file: TransferFile, offset: int, length: int, timeout: float) -> None:
        self.close()
        self._descriptor = self._source.open(file)
        self._position, self._left, self._aborted = offset, length, False

    def readinto(self, buffer: memoryview) -> int:
        if self._aborted or self._descriptor is None:
            return 0
        try:
            count = os.preadv(self._descriptor, [buffer[: self._left]], self._position)
        except OSError as error:
            raise Interrupted(f"{error.strerror}") from error
        self._position += count
        self._left -= count
        return count

    def abort(self) -> None:
        self._aborted = True

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
