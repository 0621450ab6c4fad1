"""The store of artifacts: entries under their keys, their files as immutable objects named by their digest.

The names of everything in it are in `layout`; whoever can list a bucket can read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from handler.artifacts.store import garbage_collection as collection
from handler.artifacts.store import manifest_json
from handler.artifacts.store import object_names as layout
from handler.artifacts.store.file_digests import entry_of
from handler.artifacts.store.garbage_collection import Collected
from handler.artifacts.store.gc_marks import GRACE
from handler.artifacts.store.manifest import FileEntry, Manifest
from handler.artifacts.store.manifest_signature import Signer
from handler.artifacts.store.publication import CompileInputs, PublishProgress, publish, unheard
from handler.storage.object_store import Location, ObjectStore
from handler.storage.open_store import open_objects
from handler.storage.storage_errors import ArtifactError, InvalidManifest, NotFound, SignatureRefused, TooLarge

AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Damage:
    """What `verify` found wrong with one file of an entry."""

    path: str
    problem: str


class ArtifactStore:
    """A store over any `ObjectStore`. Each call may raise what its objects raise.

    :param objects: where everything is.
    :param signer: with one, entries are signed when published, and refused when read unless signed with its key.
    """

    def __init__(self, objects: ObjectStore, signer: Signer | None = None) -> None:
        self.objects = objects
        self.signer = signer

    @classmethod
    def open(cls, uri: str, signer: Signer | None = None, setting: str = "ENDPOINT_ARTIFACT_STORE") -> ArtifactStore:
        """The store at `s3://bucket/prefix` or `file:///directory`. Nothing is asked of it yet.

        :raises SettingError: the URI names neither.
        """
        return cls(open_objects(uri, setting), signer)

    @property
    def uri(self) -> str:
        return self.objects.uri

    def find(self, key: str, kind: str) -> Manifest | None:
        """The entry under a key; None when there is none.

        :raises InvalidManifest: there is one that cannot be used.
        :raises SignatureRefused: there is one that may not be used.
        """
        try:
            return self._read(layout.manifest_name(kind, key))
        except NotFound:
            return None

    def entries(self, kind: str | None = None) -> Iterator[Manifest]:
        """Every entry that can be used, by kind and key; those that cannot are passed over (`unusable` has them)."""
        return (entry for entry in self._all(kind) if isinstance(entry, Manifest))

    def unusable(self) -> Iterator[ArtifactError]:
        """Why entries are passed over: damaged, of another schema, or not signed with the key."""
        return (entry for entry in self._all(None) if isinstance(entry, ArtifactError))

    def publish(
        self, directory: Path, ingredients: CompileInputs, progress: PublishProgress = unheard, *, replace: bool = False
    ) -> Manifest:
        """Makes an entry of a directory; see `publication.publish`."""
        return publish(self.objects, directory, ingredients, self.signer, progress, replace=replace)

    def object_location(self, digest: str) -> Location:
        """Where the bytes of a file (`FileEntry.digest`) are, for a reader of its own: a bucket and key, or a path."""
        return self.objects.location(layout.object_name(digest))

    def pin(self, key: str, kind: str) -> None:
        """Keeps an entry from being deleted.

        :raises NotFound: there is no such entry.
        """
        self.objects.head(layout.manifest_name(kind, key))
        self.objects.put(layout.pin_name(kind, key), b"")

    def unpin(self, key: str, kind: str) -> None:
        self.objects.delete(layout.pin_name(kind, key))

    def pinned(self, key: str, kind: str) -> bool:
        try:
            self.objects.head(layout.pin_name(kind, key))
        except NotFound:
            return False
        return True

    def delete(self, key: str, kind: str) -> bool:
        """Deletes one entry, readable or not; False when it is pinned. Its objects go with `collect`."""
        if self.pinned(key, kind):
            return False
        self.objects.delete(layout.manifest_name(kind, key))
        return True

    def expire(self, *, older_than: float | None = None, keep: int | None = None) -> list[tuple[str, str]]:
        """Deletes the entries that are older than `older_than` seconds, and of each kind all but the `keep` newest;
        never a pinned one. Returns key and kind of those deleted."""
        chosen = collection.expired(self.objects, older_than=older_than, keep=keep)
        return [(key, kind) for kind, key, _ in chosen if self.delete(key, kind)]

    def collect(self, grace: float = GRACE) -> Collected:
        """Deletes objects that no entry names; see `collection.collect`."""
        return collection.collect(self.objects, grace)

    def verify(self, key: str, kind: str) -> tuple[Damage, ...]:
        """Reads every object of an entry and checks its digests; empty when all are right.

        :raises NotFound: there is no such entry.
        """
        manifest = self._read(layout.manifest_name(kind, key))
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="verify") as pool:
            problems = pool.map(self._problem, manifest.files)
            return tuple(
                Damage(file.path, problem) for file, problem in zip(manifest.files, problems, strict=True) if problem
            )

    def _problem(self, file: FileEntry) -> str:
        try:
            found = entry_of(self.objects.read(layout.object_name(file.digest)), file.path)
        except NotFound:
            return "its object is missing"
        if found.size != file.size:
            return f"its object has {found.size} bytes instead of {file.size}"
        return "" if found == file else f"its object has the digest {found.digest[:16]}... instead"

    def _all(self, kind: str | None) -> Iterator[Manifest | ArtifactError]:
        prefix = f"{layout.MANIFESTS}{kind}/" if kind else layout.MANIFESTS
        names = (info.key for info in self.objects.list(prefix) if layout.of_manifest(info.key))
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="entries") as pool:
            while batch := [name for _, name in zip(range(AT_ONCE), names, strict=False)]:
                yield from (entry for entry in pool.map(self._try, batch) if entry is not None)

    def _try(self, name: str) -> Manifest | ArtifactError | None:
        try:
            return self._read(name)
        except NotFound:
            return None  # deleted since it was listed
        except (InvalidManifest, SignatureRefused, TooLarge) as error:
            return error

    def _read(self, name: str) -> Manifest:
        uri = self.objects.location(name).uri
        body, _ = self.objects.get(name, limit=manifest_json.MOST_BYTES)
        manifest = manifest_json.read(body, uri, self.signer)
        if name != layout.manifest_name(manifest.kind, manifest.key):
            raise InvalidManifest(uri, f"it belongs to the {manifest.kind} entry {manifest.key}")
        return manifest
