"""Publishing a directory as an entry: objects first, several at once, the manifest last.

Until the manifest is there nothing is: a publisher that dies leaves objects that nobody names, and a later collection
takes them. Of two that publish the same key one wins, and the other gets the winner's manifest.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from handler.artifacts.store import manifest_json
from handler.artifacts.store import object_names as layout
from handler.artifacts.store.file_digests import file_entry
from handler.artifacts.store.gc_marks import GRACE, Marks
from handler.artifacts.store.manifest import FileEntry, Manifest
from handler.artifacts.store.manifest_signature import Signer
from handler.json_value import Json
from handler.storage.object_store import ObjectStore
from handler.storage.safe_paths import confined_all
from handler.storage.storage_errors import ChangedFile, Conflict, InvalidManifest, NotFound, UnsafePath

AT_ONCE = 8
PublishProgress = Callable[[int, int], None]
WEIGHTS = re.compile(r"(?:.*/)?weights/[^/]+\.safetensors")


@dataclass(frozen=True, slots=True)
class CompileInputs:
    """What an entry is published under, and what is said of how it was made. See `Manifest`."""

    key: str
    kind: str
    fields: Mapping[str, Json]
    compile_seconds: float | None = None
    machine: Mapping[str, str] = field(default_factory=dict)


def unheard(done: int, total: int) -> None:
    """For callers who follow no progress."""


def publish(
    objects: ObjectStore,
    directory: Path,
    ingredients: CompileInputs,
    signer: Signer | None = None,
    progress: PublishProgress = unheard,
    *,
    replace: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Manifest:
    """Uploads what is not there yet, then the manifest; returns the manifest that readers now find.

    A `weights` entry takes the shards (`weights/*.safetensors`), a `graph` entry everything else.

    :param progress: called with bytes done and bytes in all.
    :param replace: takes the place of a usable entry, too (one whose objects were found damaged).
    :raises ChangedFile: something still writes to the directory. :raises UnsafePath: it holds a link or a device.
    """
    paths = [path for path in relative_files(directory) if bool(WEIGHTS.fullmatch(path)) == _is_weights(ingredients)]
    if not paths:
        raise NotFound(f"{directory} with files of the kind '{ingredients.kind}'")
    confined_all(paths)
    total = sum((directory / path).stat().st_size for path in paths)
    counted = _Counter(total, progress)
    marks = Marks(objects)
    began = clock()
    condemned = marks.condemned()

    def upload(path: str) -> FileEntry:
        return _upload(objects, marks, condemned, directory, path, counted, replace)

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="publish") as pool:
        files = tuple(pool.map(upload, paths))
    if clock() - began > GRACE / 2:
        _look_again(objects, marks, directory, files)
    manifest = Manifest(
        key=ingredients.key,
        kind=ingredients.kind,
        fields=ingredients.fields,
        files=files,
        created=time.time(),
        compile_seconds=ingredients.compile_seconds,
        machine=ingredients.machine,
    )
    return _announce(objects, manifest, signer, replace)


def relative_files(directory: Path) -> list[str]:
    """The files below a directory in the order in which an engine needs them: configurations, graphs, then weights by
    rank.

    :raises UnsafePath: a link or a device, whose bytes would not be what lies in the directory.
    """
    found = []
    for parent, directories, names in os.walk(directory, onerror=_raise):
        for name in (*directories, *names):
            path = Path(parent, name)
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise UnsafePath(path.relative_to(directory).as_posix(), "is a link or a device")
        found += [Path(parent, name).relative_to(directory).as_posix() for name in names]
    return sorted(found, key=_order)


def _order(path: str) -> tuple[int, list[tuple[int, str]]]:
    rank = 2 if WEIGHTS.fullmatch(path) else 0 if path.endswith(".json") else 1
    return rank, [(int(digits or 0), text) for text, digits in re.findall(r"(\D*)(\d*)", path)]


def _upload(
    objects: ObjectStore,
    marks: Marks,
    condemned: set[str],
    directory: Path,
    path: str,
    counted: _Counter,
    replace: bool,
) -> FileEntry:
    source = directory / path
    before = source.stat()
    entry = file_entry(source, path)
    name = layout.object_name(entry.digest)
    if entry.digest in condemned:
        marks.spare(entry.digest)
    if replace or not _there(objects, name, entry.size):
        objects.upload(name, source)
    after = source.stat()
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size) or after.st_size != entry.size:
        raise ChangedFile(str(source))
    counted.add(entry.size)
    return entry


def _there(objects: ObjectStore, name: str, size: int) -> bool:
    try:
        return objects.head(name).size == size
    except NotFound:
        return False


def _look_again(objects: ObjectStore, marks: Marks, directory: Path, files: tuple[FileEntry, ...]) -> None:
    """After a long upload: what was condemned meanwhile is spared, what is gone uploaded again."""
    condemned = marks.condemned()
    for entry in files:
        if entry.digest in condemned:
            marks.spare(entry.digest)
        if not _there(objects, layout.object_name(entry.digest), entry.size):
            objects.upload(layout.object_name(entry.digest), directory / entry.path)


def _announce(objects: ObjectStore, manifest: Manifest, signer: Signer | None, replace: bool) -> Manifest:
    name = layout.manifest_name(manifest.kind, manifest.key)
    body = manifest_json.written(manifest, signer)
    try:
        objects.put(name, body, if_absent=True)
    except Conflict:
        try:
            present, etag = objects.get(name)
            winner = manifest_json.read(present, objects.location(name).uri, signer)
            if not replace:
                return winner
        except InvalidManifest:
            pass  # of no use to any reader: ours takes its place
        objects.put(name, body, if_match=etag)
    return manifest


class _Counter:
    def __init__(self, total: int, progress: PublishProgress) -> None:
        self._done, self._total, self._progress, self._lock = 0, total, progress, threading.Lock()
        progress(0, total)

    def add(self, size: int) -> None:
        with self._lock:
            self._done += size
            self._progress(self._done, self._total)


def _is_weights(ingredients: CompileInputs) -> bool:
    return ingredients.kind == "weights"


def _raise(error: OSError) -> None:
    raise error
