"""Reads every file of a package once: computes its digests and searches it for secrets in the same pass."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from handler.artifacts.store.manifest import FileEntry
from handler.storage.storage_errors import ChangedFile
from model_packaging.package.package_item import Item
from model_packaging.package.package_manifest import PackageManifest
from model_packaging.package.secret_scan import scanned

AT_ONCE = 4
DigestListener = Callable[[int, int], None]


class Counter:
    """Counts processed bytes over several threads."""

    def __init__(self, total: int, listener: DigestListener) -> None:
        self._done, self._total, self._listener, self._lock = 0, total, listener, threading.Lock()
        listener(0, total)

    def add(self, size: int) -> None:
        with self._lock:
            self._done += size
            self._listener(self._done, self._total)


def digest_all(items: Iterable[Item], known: tuple[bytes, ...], listener: DigestListener) -> PackageManifest:
    """Returns the manifest of these files.

    :param known: secrets of this process (`known_secrets`).
    :raises SecretFound: a file contains a token.
    :raises ChangedFile: the size of a file has changed since it was listed.
    """
    listed = tuple(items)
    counter = Counter(sum(item.size for item in listed), listener)

    def entry(item: Item) -> FileEntry:
        made = FileEntry.of_chunks(_counted(scanned(item.origin.chunks(), item.path, known), counter), item.path)
        if made.size != item.size:
            raise ChangedFile(item.path)
        return made

    with ThreadPoolExecutor(min(AT_ONCE, len(os.sched_getaffinity(0))), thread_name_prefix="digest") as pool:
        return PackageManifest(tuple(pool.map(entry, listed)))


def _counted(chunks: Iterable[bytes], counter: Counter) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        counter.add(len(chunk))
