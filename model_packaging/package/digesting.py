"""Reads every file of a package once: computes its digests and searches it for secrets in the same pass."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from handler.artifacts.store.manifest import FileEntry
from handler.storage.storage_errors import ChangedFile
from handler.storage.transfer.transfer_progress import ByteCounter, ByteProgress
from model_packaging.package.package_item import Item
from model_packaging.package.package_manifest import PackageManifest
from model_packaging.package.secret_scan import scanned

AT_ONCE = 4


def digest_all(items: Iterable[Item], known: tuple[bytes, ...], listener: ByteProgress) -> PackageManifest:
    """Returns the manifest of these files.

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

    with ThreadPoolExecutor(min(AT_ONCE, len(os.sched_getaffinity(0))), thread_name_prefix="digest") as pool:
        return PackageManifest(tuple(pool.map(entry, listed)))


def _counted(chunks: Iterable[bytes], counter: ByteCounter) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        counter.add(len(chunk))
