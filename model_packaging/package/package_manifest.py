"""`endpoint-package.json`: lists every file of a package with its size and digests. It is written last.

It contains no time and no machine's name, so the same files give the same bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from handler.artifacts.store.manifest import FileEntry
from handler.storage.safe_paths import confined_all
from handler.storage.storage_errors import ArtifactError, ChangedFile
from handler.storage.transfer.transfer_progress import ByteCounter, ByteProgress
from model_packaging.package.package_item import Item
from model_packaging.package.secret_scan import scanned

NAME = "endpoint-package.json"
SCHEMA = 1
MOST_BYTES = 64 * 1024 * 1024
READ_AT_ONCE = 4


class InvalidPackage(ArtifactError):
    """The folder, prefix or archive is not a package, or its manifest cannot be read."""

    code = "package_invalid"

    def __init__(self, where: str, problem: str) -> None:
        self.where, self.problem = where, problem
        super().__init__(f"{where} is not a package: {problem}. Make one with `neuron-endpoint pack`.")


@dataclass(frozen=True, slots=True)
class PackageManifest:
    """The manifest of a package.

    :param files: sorted by path, without the manifest itself.
    """

    files: tuple[FileEntry, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def digest_all(items: Iterable[Item], known: tuple[bytes, ...], listener: ByteProgress) -> PackageManifest:
    """Returns the manifest of these files. Each is read once, and searched for secrets in the same pass.

    :param known: secrets of this process (`known_secrets`).
    :raises SecretFound: a file contains a token.
    :raises ChangedFile: the size of a file has changed since it was listed.
    """
    listed = tuple(items)
    counter = ByteCounter(sum(item.size for item in listed), listener)

    def entry(item: Item) -> FileEntry:
        made = FileEntry.of_chunks(_counted(scanned(item.origin.chunks(), item.path, known), counter), item.path)
        if made.size != item.size:
            raise ChangedFile(item.path)
        return made

    with ThreadPoolExecutor(min(READ_AT_ONCE, len(os.sched_getaffinity(0))), thread_name_prefix="digest") as pool:
        return PackageManifest(tuple(pool.map(entry, listed)))


def _counted(chunks: Iterable[bytes], counter: ByteCounter) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        counter.add(len(chunk))


def written(manifest: PackageManifest) -> bytes:
    files = [
        {"path": file.path, "size": file.size, "blake3": file.digest, **({"parts": file.parts} if file.parts else {})}
        for file in sorted(manifest.files, key=lambda file: file.path)
    ]
    return (json.dumps({"schema": SCHEMA, "files": files}, indent=1, ensure_ascii=False) + "\n").encode()


def read(body: bytes, where: str) -> PackageManifest:
    """Reads a manifest.

    :raises InvalidPackage: it is damaged, or has paths outside of the package.
    """
    try:
        document = json.loads(body)
        if document["schema"] != SCHEMA:
            raise InvalidPackage(where, f"its schema is {str(document['schema'])[:20]!r}, this version reads {SCHEMA}")
        files = tuple(
            FileEntry(
                _str(file["path"]), _size(file["size"]), _str(file["blake3"]), tuple(map(_str, file.get("parts", ())))
            )
            for file in document["files"]
        )
        confined_all(file.path for file in files)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidPackage(where, f"its {NAME} cannot be read ({type(error).__name__})") from error
    return PackageManifest(files)


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise TypeError(value)
    return value
