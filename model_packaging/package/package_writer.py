"""Writes a package to a folder, or as `model.tar.gz` with plain files only. It appears complete or not at all.

SageMaker unpacks an archive on one core before the container starts. Packing uses one core, too, and weights hardly
shrink (docs/packaging.md has the measurements). So the default is a folder, and for archives the fastest level.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any

from handler.errors import SettingError
from handler.storage.transfer.transfer_progress import ByteCounter, ByteProgress
from model_packaging.package.package_item import CHUNK, GeneratedItem, Item, LocalFile
from model_packaging.package.package_manifest import NAME, PackageManifest, written

ARCHIVES = (".tar.gz", ".tgz")
LINKED = 64 << 20  # bytes: a tokenizer is smaller


def write_folder(items: Iterable[Item], manifest: PackageManifest, target: Path, listener: ByteProgress) -> None:
    """Writes a package. Large local files are hard-linked if possible, so that 140 GB of weights are not written again.

    So a later change of such a file in place changes both (`verify` notices that). A configuration that somebody edits
    is copied.

    :raises SettingError: the target exists, or the disk is too small.
    """
    require_absent(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    counter = ByteCounter(manifest.size, listener)
    try:
        for item in items:
            place = fresh / item.path
            place.parent.mkdir(parents=True, exist_ok=True)
            _place(item, place)
            counter.add(item.size)
        (fresh / NAME).write_bytes(written(manifest))
        fresh.chmod(0o755)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def require_package_name(setting: str, place: str) -> None:
    """:raises SettingError: the name ends as an archive's that SageMaker does not unpack."""
    if place.lower().endswith((".zip", ".tar", ".bz2", ".xz", ".zst", ".7z")):
        fix = "Give a folder's name, or one in .tar.gz, which SageMaker unpacks."
        raise SettingError(setting, f"a package is no {place.rpartition('.')[2]} file", fix)


def require_local(place: str) -> None:
    """:raises SettingError: it is a URI, of which a folder here would get the name."""
    if "://" in place:
        fix = "Give a path, or upload the parts to S3 with `neuron-endpoint push`."
        raise SettingError("--to", f"{place[:200]} is no path on this machine", fix)


def require_absent(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise SettingError("--to", f"{target} already exists", "Remove it, or give another path.")


def _place(item: Item, place: Path) -> None:
    if isinstance(item.origin, LocalFile) and item.size >= LINKED:
        try:
            os.link(item.origin.path, place)
            return
        except OSError:
            pass  # another file system
    with open(place, "xb") as file:
        for chunk in item.origin.chunks():
            file.write(chunk)


def write_archive(
    items: Iterable[Item], manifest: PackageManifest, target: Path, listener: ByteProgress, level: int
) -> None:
    """Writes an archive. Its first member is the manifest, for quick inspection. The same content gives the same bytes.

    :param level: gzip's level, 0 to 9; 0 does not compress. Another version of zlib may give other bytes.
    """
    require_absent(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    counter = ByteCounter(manifest.size, listener)
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

    def __init__(self, chunks: Iterator[bytes], counter: ByteCounter) -> None:
        self._chunks, self._rest, self._counter = chunks, memoryview(b""), counter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or memoryview(next(self._chunks, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        self._counter.add(size)
        return size
