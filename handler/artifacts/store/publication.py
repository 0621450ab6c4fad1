"""Publishes a directory as an entry: first the objects, several at once, then the manifest.

Without its manifest an entry is not visible. A publisher that dies leaves unreferenced objects, which a later garbage
collection deletes. If two publish the same key, one wins, and the other gets the winner's manifest.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from handler.artifacts.store import object_names
from handler.artifacts.store.gc_marks import GRACE, Marks
from handler.artifacts.store.manifest import FileEntry, Manifest, decode, encode
from handler.artifacts.store.manifest_signature import Signer
from handler.json_value import Json
from handler.storage.object_store import ObjectStore, size_of
from handler.storage.safe_paths import confined_all
from handler.storage.storage_errors import (
    ChangedFile,
    Conflict,
    InvalidManifest,
    NotFound,
    SignatureRefused,
    UnsafePath,
)
from handler.storage.transfer.transfer_progress import ByteCounter, ByteProgress, ignore_bytes

AT_ONCE = 8
# The quantized weights that a compile has made.
MADE_WEIGHTS = "quantized/weights"
WEIGHTS = re.compile(rf"(?:.*/)?weights/[^/]+\.safetensors|{MADE_WEIGHTS}/.+")


@dataclass(frozen=True, slots=True)
class CompileInputs:
    """The key of a new entry, and how it was compiled. See `Manifest`."""

    key: str
    kind: str
    fields: Mapping[str, Json]
    compile_seconds: float | None = None
    machine: Mapping[str, str] = field(default_factory=dict)


def publish(
    objects: ObjectStore,
    directory: Path,
    inputs: CompileInputs,
    signer: Signer | None = None,
    progress: ByteProgress = ignore_bytes,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Manifest:
    """Uploads the missing objects, then the manifest. Returns the manifest that readers now find.

    An entry that is broken, or not signed although there is a signer, is replaced.
    A `weights` entry contains the shards (`weights/*.safetensors`) or quantized weights, a `graph` entry all else.

    :param progress: called with the bytes done and the total.
    :raises ChangedFile: a process still writes to the directory.
    :raises UnsafePath: the directory contains a link or a device.
    """
    paths = [path for path in relative_files(directory) if bool(WEIGHTS.fullmatch(path)) == (inputs.kind == "weights")]
    if not paths:
        raise NotFound(f"{directory} with files of the kind '{inputs.kind}'")
    confined_all(paths)
    total = sum((directory / path).stat().st_size for path in paths)
    counted = ByteCounter(total, progress)
    marks = Marks(objects)
    began = clock()
    marked = set(marks.all())

    def upload(path: str) -> FileEntry:
        return _upload(objects, marks, marked, directory, path, counted)

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="publish") as pool:
        files = tuple(pool.map(upload, paths))
    if clock() - began > GRACE / 2:
        _look_again(objects, marks, directory, files)
    manifest = Manifest(
        key=inputs.key,
        kind=inputs.kind,
        fields=inputs.fields,
        files=files,
        created=time.time(),
        compile_seconds=inputs.compile_seconds,
        machine=inputs.machine,
    )
    return _write_manifest(objects, manifest, signer)


def relative_files(directory: Path) -> list[str]:
    """Returns the files below a directory in the order in which an engine needs them.

    The order is: configurations, graphs, then weights by rank.

    :raises UnsafePath: there is a link or a device, whose content is not in the directory.
    """
    files: list[str] = []
    for parent, directories, names in os.walk(directory, onerror=_raise):
        for name in (*directories, *names):
            path = Path(parent, name)
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise UnsafePath(path.relative_to(directory).as_posix(), "is a link or a device")
        files += [Path(parent, name).relative_to(directory).as_posix() for name in names]
    return sorted(files, key=_order)


def _order(path: str) -> tuple[int, list[tuple[int, str]]]:
    rank = 2 if WEIGHTS.fullmatch(path) else 0 if path.endswith(".json") else 1
    return rank, [(int(digits or 0), text) for text, digits in re.findall(r"(\D*)(\d*)", path)]


def _upload(
    objects: ObjectStore,
    marks: Marks,
    marked: set[str],
    directory: Path,
    path: str,
    counted: ByteCounter,
) -> FileEntry:
    source = directory / path
    before = source.stat()
    entry = FileEntry.of_file(source, path)
    name = object_names.object_name(entry.digest)
    if entry.digest in marked:
        marks.keep(entry.digest)
    if size_of(objects, name) != entry.size:
        objects.upload(name, source)
    after = source.stat()
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size) or after.st_size != entry.size:
        raise ChangedFile(str(source))
    counted.add(entry.size)
    return entry


def _look_again(objects: ObjectStore, marks: Marks, directory: Path, files: tuple[FileEntry, ...]) -> None:
    """After a long upload: keeps objects that were marked in the meantime, and uploads deleted ones again."""
    marked = set(marks.all())
    for entry in files:
        if entry.digest in marked:
            marks.keep(entry.digest)
        name = object_names.object_name(entry.digest)
        if size_of(objects, name) != entry.size:
            objects.upload(name, directory / entry.path)


def _write_manifest(objects: ObjectStore, manifest: Manifest, signer: Signer | None) -> Manifest:
    name = object_names.manifest_name(manifest.kind, manifest.key)
    body = encode(manifest, signer)
    try:
        objects.put(name, body, if_absent=True)
    except Conflict:
        try:
            present, etag = objects.get(name)
            return decode(present, objects.location(name).uri, signer)
        except InvalidManifest:
            pass  # no reader can use it, so it is replaced
        except SignatureRefused as error:
            if not error.unsigned:
                raise
        objects.put(name, body, if_match=etag)
    return manifest


def _raise(error: OSError) -> None:
    raise error
