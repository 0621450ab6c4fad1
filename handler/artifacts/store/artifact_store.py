"""The store of compiled artifacts. An entry has a key; its files are immutable objects named by their digest.

`object_names` has the names of all objects in a store.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path

from handler.artifacts.store import garbage_collection, object_names
from handler.artifacts.store.garbage_collection import Collected
from handler.artifacts.store.gc_marks import GRACE
from handler.artifacts.store.manifest import MOST_BYTES, FileEntry, Manifest, decode
from handler.artifacts.store.manifest_signature import Signer
from handler.artifacts.store.publication import CompileInputs, publish
from handler.storage.object_store import Location, ObjectStore, size_of
from handler.storage.open_store import open_objects
from handler.storage.storage_errors import (
    ArtifactError,
    Conflict,
    InvalidManifest,
    NotFound,
    SignatureRefused,
    TooLarge,
)
from handler.storage.transfer.transfer_progress import ByteProgress, ignore_bytes

AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Damage:
    """A problem that `verify` found with one file of an entry."""

    path: str
    problem: str


class ArtifactStore:
    """A store of artifacts over any `ObjectStore`. Every call may raise the errors of that store.

    :param objects: the object store that holds everything.
    :param signer: if given, entries are signed when they are published, and rejected unless they are signed with its
        key.
    """

    def __init__(self, objects: ObjectStore, signer: Signer | None = None) -> None:
        self.objects = objects
        self.signer = signer

    @classmethod
    def open(cls, uri: str, signer: Signer | None = None, setting: str = "ENDPOINT_ARTIFACT_STORE") -> ArtifactStore:
        """Returns the store at `s3://bucket/prefix` or `file:///directory`. Sends no request yet.

        :raises SettingError: the URI has another form.
        """
        return cls(open_objects(uri, setting), signer)

    @property
    def uri(self) -> str:
        return self.objects.uri

    def find(self, key: str, kind: str) -> Manifest | None:
        """Returns the entry with a key, or None.

        :raises InvalidManifest: its manifest is broken.
        :raises SignatureRefused: it is not signed with the configured key.
        """
        try:
            return self._read(object_names.manifest_name(kind, key))
        except NotFound:
            return None

    def entries(self, kind: str | None = None, newest: int | None = None) -> Iterator[Manifest]:
        """Yields every usable entry, sorted by kind and key. Others are skipped; `unusable` yields their errors.

        :param newest: read only so many manifests, from the newest on.
        """
        return (entry for entry in self._all(kind, newest) if isinstance(entry, Manifest))

    def unusable(self) -> Iterator[ArtifactError]:
        """Yields the error of every unusable entry: damaged, of another schema, or not signed with the key."""
        return (entry for entry in self._all(None) if isinstance(entry, ArtifactError))

    def names(self) -> Iterator[tuple[str, str]]:
        """Yields kind and key of every entry, also of unusable ones. No manifest is read."""
        listed = (object_names.of_manifest(info.key) for info in self.objects.list(object_names.MANIFESTS))
        return (name for name in listed if name)

    def publish(self, directory: Path, inputs: CompileInputs, progress: ByteProgress = ignore_bytes) -> Manifest:
        """Publishes a directory as an entry. See `publication.publish`."""
        return publish(self.objects, directory, inputs, self.signer, progress)

    def object_location(self, digest: str) -> Location:
        """Returns where the object of a file (`FileEntry.digest`) is, for code that reads it itself."""
        return self.objects.location(object_names.object_name(digest))

    def pin(self, key: str, kind: str) -> None:
        """Protects an entry from deletion, or raises NotFound if there is none."""
        self.objects.head(object_names.manifest_name(kind, key))
        self.objects.put(object_names.pin_name(kind, key), b"")

    def unpin(self, key: str, kind: str) -> None:
        self.objects.delete(object_names.pin_name(kind, key))

    def pinned(self, key: str, kind: str) -> bool:
        return size_of(self.objects, object_names.pin_name(kind, key)) is not None

    def delete(self, key: str, kind: str) -> bool:
        """Deletes one entry, also a broken one. Returns False if it is pinned. `collect` deletes its objects.

        If it is damaged, call `delete_damaged` before.
        """
        if self.pinned(key, kind):
            return False
        self.objects.delete(object_names.manifest_name(kind, key))
        return True

    def delete_damaged(self, key: str, kind: str) -> int:
        """Deletes the objects of an entry whose content does not have their digest. Returns how many.

        No entry can use such an object, and a publication would keep it if it has the right size. Reads every byte. If
        the manifest cannot be read, its objects are unknown and stay.
        """
        try:
            manifest = self._read(object_names.manifest_name(kind, key))
        except (NotFound, InvalidManifest, SignatureRefused, TooLarge):
            return 0
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="damaged") as pool:
            return sum(pool.map(self._delete_if_damaged, {file.digest for file in manifest.files}))

    def _delete_if_damaged(self, digest: str) -> bool:
        name = object_names.object_name(digest)
        try:
            etag = self.objects.head(name).etag
            # Only the digest counts: size and parts come from the manifest, which may itself be wrong.
            if FileEntry.of_chunks(self.objects.read(name), name).digest == digest:
                return False
            self.objects.delete(name, if_match=etag)
        except (NotFound, Conflict):
            return False  # missing, or written again in the meantime
        return True

    def collect(self, grace: float = GRACE) -> Collected:
        """Deletes objects that no entry refers to. See `garbage_collection.collect`."""
        return garbage_collection.collect(self.objects, grace)

    def verify(self, key: str, kind: str) -> tuple[Damage, ...]:
        """Reads every object of an entry and checks its digests. Returns the problems.

        :raises NotFound: there is no such entry.
        """
        manifest = self._read(object_names.manifest_name(kind, key))
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="verify") as pool:
            problems = pool.map(self._problem, manifest.files)
            return tuple(
                Damage(file.path, problem) for file, problem in zip(manifest.files, problems, strict=True) if problem
            )

    def _problem(self, file: FileEntry) -> str:
        try:
            stored = FileEntry.of_chunks(self.objects.read(object_names.object_name(file.digest)), file.path)
        except NotFound:
            return "its object is missing"
        if stored.size != file.size:
            return f"its object has {stored.size} bytes instead of {file.size}"
        return "" if stored == file else f"its object has the digest {stored.digest[:16]}... instead"

    def _all(self, kind: str | None, newest: int | None = None) -> Iterator[Manifest | ArtifactError]:
        prefix = f"{object_names.MANIFESTS}{kind}/" if kind else object_names.MANIFESTS
        listed = (info for info in self.objects.list(prefix) if object_names.of_manifest(info.key))
        chosen = listed if newest is None else nlargest(newest, listed, key=lambda info: info.modified)
        names = (info.key for info in chosen)
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="entries") as pool:
            while batch := [name for _, name in zip(range(AT_ONCE), names, strict=False)]:
                yield from (entry for entry in pool.map(self._try, batch) if entry is not None)

    def _try(self, name: str) -> Manifest | ArtifactError | None:
        try:
            return self._read(name)
        except NotFound:
            return None  # deleted after it was listed
        except (InvalidManifest, SignatureRefused, TooLarge) as error:
            return error

    def _read(self, name: str) -> Manifest:
        uri = self.objects.location(name).uri
        body, _ = self.objects.get(name, limit=MOST_BYTES)
        manifest = decode(body, uri, self.signer)
        if name != object_names.manifest_name(manifest.kind, manifest.key):
            raise InvalidManifest(uri, f"it belongs to the {manifest.kind} entry {manifest.key}")
        return manifest
