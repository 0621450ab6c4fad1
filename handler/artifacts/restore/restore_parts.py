"""What a restore fetches: the files of its entries in parts, in the order in which the engine needs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from blake3 import blake3

from handler.artifacts.store.manifest import PART_SIZE, FileEntry, Manifest
from handler.storage.safe_paths import confined_all
from handler.storage.storage_errors import InvalidManifest


@dataclass(frozen=True, slots=True)
class FilePart:
    """A piece of a file, with the digest that it must have. Offset and length in bytes."""

    file: FileEntry
    offset: int
    length: int
    digest: str


@dataclass(frozen=True, slots=True)
class RestoreContents:
    """What a directory will hold: the files of one entry, or of several (a graph's and its weights').

    :param identity: digest over every file's path, size and digest: equal exactly when the directories are.
    """

    files: tuple[FileEntry, ...]
    size: int
    identity: str

    @classmethod
    def of(cls, manifests: Sequence[Manifest]) -> RestoreContents:
        """Checked once more, although whoever read the manifests has done so: what is written where depends on it.

        :raises UnsafePath: a path leaves the directory, or two files clash.
        :raises InvalidManifest: a file has not a digest for each of its parts.
        """
        files = tuple(file for manifest in manifests for file in manifest.files)
        confined_all(file.path for file in files)
        for file in files:
            expected = -(-file.size // PART_SIZE)
            if file.size < 0 or len(file.parts) != (expected if expected > 1 else 0):
                raise InvalidManifest("of this restore", f"{file.path!r} has not a digest for each of its parts")
        identity = blake3()
        for file in sorted(files, key=lambda file: file.path):
            identity.update(f"{file.path}\0{file.size}\0{file.digest}\0".encode())
        return cls(files, sum(file.size for file in files), identity.hexdigest())

    def parts(self) -> Iterator[FilePart]:
        """Every part of every file that has bytes."""
        for file in self.files:
            digests = file.parts or (file.digest,)
            for number, offset in enumerate(range(0, file.size, PART_SIZE)):
                yield FilePart(file, offset, min(PART_SIZE, file.size - offset), digests[number])
