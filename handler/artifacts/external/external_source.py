"""Downloads or unpacks external compiled artifacts from the place that a setting names. Checks nothing."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from handler.config.start_rules import require_artifacts_place
from handler.errors import SettingError
from handler.storage.archive import unpack
from handler.storage.open_store import open_objects
from handler.storage.s3_download import SCRATCH, download_prefix
from handler.storage.storage_errors import NotFound
from handler.storage.transfer.download_directory import full_disk_named, mark_written, written_here
from handler.storage.transfer.transfer_progress import ByteProgress, ignore_bytes

ARCHIVES = (".tar.gz", ".tgz", ".tar")


def fetch_external_artifacts(
    source: str,
    target: Path,
    setting: str = "NEURON_COMPILED_ARTIFACTS",
    progress: ByteProgress = ignore_bytes,
) -> Path:
    """Returns a local directory with the artifacts: `source` itself, or `target` after a download.

    :param source: a directory, a `model.tar.gz`, or either in S3 (`s3://bucket/prefix/`, `s3://bucket/model.tar.gz`).
    :raises SettingError: the source does not exist, or is of another form.
    :raises UnsafeArchive: see `archive.unpack`.
    """
    require_artifacts_place(source, setting)
    if source.startswith("s3://"):
        if not source.endswith(ARCHIVES):
            download_prefix(source, target, setting, progress)
            return target
        parent, _, name = source.rpartition("/")
        if not written_here(target):
            try:
                stream = io.BufferedReader(_Chunks(open_objects(parent, setting).read(name)))
                _unpack(cast("BinaryIO", stream), target, source)
            except NotFound:
                raise SettingError(setting, f"there is no {source}", "Give the artifacts' prefix or archive.") from None
        return target
    path = Path(source)
    if path.is_dir():
        return path
    if path.is_file() and source.endswith(ARCHIVES):
        if not written_here(target):
            with path.open("rb") as file:
                _unpack(file, target, source)
        return target
    raise SettingError(setting, f"there is no directory or archive {source}", "Give the artifacts' directory.")


def _unpack(stream: BinaryIO, target: Path, source: str) -> None:
    with full_disk_named(SCRATCH, target.parent):
        shutil.rmtree(target, ignore_errors=True)  # of an earlier boot
        unpack(stream, target, source)
        mark_written(target)


class _Chunks(io.RawIOBase):
    """A readable file over an iterator of chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._left = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size
