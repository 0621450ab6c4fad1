"""Writes a package as `model.tar.gz`, with plain files only. The same content gives the same bytes.

SageMaker unpacks an archive on one core before the container starts. Packing uses one core, too, and weights hardly
shrink (docs/packaging.md has the measurements). So the default is a folder, and for archives the fastest level.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any

from model_packaging.package.digesting import Counter, DigestListener
from model_packaging.package.package_directory import require_absent
from model_packaging.package.package_item import CHUNK, GeneratedItem, Item
from model_packaging.package.package_manifest import NAME, PackageManifest, written


def write(items: Iterable[Item], manifest: PackageManifest, target: Path, listener: DigestListener, level: int) -> None:
    """Writes an archive, which appears complete or not at all. Its first member is the manifest, for quick inspection.

    :param level: gzip's level, 0 to 9; 0 does not compress. Another version of zlib may give other bytes.
    """
    require_absent(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    counter = Counter(manifest.size, listener)
    body = written(manifest)
    first = Item(NAME, len(body), GeneratedItem(body))
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            gzip.GzipFile(filename="", mode="wb", compresslevel=level, fileobj=file, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            for item in (first, *sorted(items, key=lambda item: item.path)):
                tar.addfile(_member(item), BufferedReader(_Chunks(item.origin.chunks(), counter), CHUNK))
        Path(name).chmod(0o644)
        Path(name).rename(target)
    finally:
        Path(name).unlink(missing_ok=True)


def _member(item: Item) -> tarfile.TarInfo:
    """Returns a member's header without this machine's time, owner and mode."""
    member = tarfile.TarInfo(item.path)
    member.size, member.mode, member.mtime = item.size, 0o644, 0
    return member


class _Chunks(RawIOBase):
    """A raw file over chunks, for tarfile to read from."""

    def __init__(self, chunks: Iterator[bytes], counter: Counter) -> None:
        self._chunks, self._rest, self._counter = chunks, memoryview(b""), counter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or memoryview(next(self._chunks, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        self._counter.add(size)
        return size
