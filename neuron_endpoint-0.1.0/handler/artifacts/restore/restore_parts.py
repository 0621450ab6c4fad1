"""The files of a restore in parts, in the order in which the engine needs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from blake3 import blake3

from handler.artifacts.store.manifest import PART_SIZE, FileEntry, Manifest
from handler.storage.safe_paths import confined_all
from handler.storage.storage_errors import InvalidManifest
from handler.storage.transfer.file_parts import FilePart


@dataclass(frozen=True, slots=True)
class RestoreContents:
    """The files of a restored directory, from one entry or from several (a graph and its weights).

    :param identity: digest over the path, size and digest of every file. It is equal if the directories are equal.
    """

    files: tuple[FileEntry, ...]
    size: int
    identity: str

    @classmethod
    def of(cls, manifests: Sequence[Manifest]) -> RestoreContents:
        """Collects the files of the manifests. Checks the paths again, because they decide where files are written.

        :raises UnsafePath: a path leaves the directory, or two files clash.
        :raises InvalidManifest: a file does not have a digest for each of its parts.
        """
        files = tuple(file for manifest in manifests for file in manifest.files)
        confined_all([file.path for file in files])
        for file in files:
            expected = -(-file.size // PART_SIZE)
            if file.size < 0 or len(file.parts) != (expected if expected > 1 else 0):
                raise InvalidManifest("of this restore", f"{file.path!r} does not have a digest for each of its parts")
        identity = blake3()
        for file in sorted(files, key=lambda file: file.path):
            identity.update(f"{file.path}\0{file.size}\0{file.digest}\0".encode())
        return cls(files, sum(file.size for file in files), identity.hexdigest())

    def parts(self) -> Iterator[FilePart]:
        """Yields every part of every file that is not empty."""
        for file in self.files:
            digests = file.parts or (file.digest,)
            for number, offset in enumerate(range(0, file.size, PART_SIZE)):
                yield FilePart(file, offset, min(PART_SIZE, file.size - offset), digests[number])
