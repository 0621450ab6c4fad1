"""Checks that a TorchScript file (a zip) is complete, from the central directory at its end. Loads and runs nothing.

`torch.jit.load` of a truncated `model.pt` raises RuntimeError. The plugin does not catch it, so the engine would end.
"""

from __future__ import annotations

import io
import zipfile

from handler.storage.safetensors_header import BrokenFile, ReadRange

LARGEST_READ = 64 * 1024 * 1024


def check_torchscript(read: ReadRange, size: int) -> None:
    """Reads the central directory of the zip file.

    :raises BrokenFile: it is not a zip file, it was cut off, or it contains no TorchScript.
    """
    try:
        with zipfile.ZipFile(_Ranges(read, size)) as archive:
            members = archive.infolist()
            start = archive.start_dir
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError) as error:
        raise BrokenFile("is not a complete zip file, as TorchScript is: it was cut off or never finished") from error
    if any(member.header_offset + member.compress_size > start for member in members):
        raise BrokenFile("is a zip file whose directory refers to bytes that are missing")
    if not any(member.filename.endswith("/constants.pkl") for member in members):
        raise BrokenFile("is a zip file, but not TorchScript: it has no constants.pkl")


class _Ranges(io.RawIOBase):
    """A seekable file for `zipfile` over a range reader. One read returns at most `LARGEST_READ` bytes."""

    def __init__(self, read: ReadRange, size: int) -> None:
        self._read, self._size, self._at = read, size, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError("before the file's beginning")
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        wanted = max(min(self._size - self._at, size if size >= 0 else self._size), 0)
        if wanted > LARGEST_READ:
            raise ValueError("its directory is too large")
        body = self._read(self._at, wanted) if wanted else b""
        self._at += len(body)
        return body
