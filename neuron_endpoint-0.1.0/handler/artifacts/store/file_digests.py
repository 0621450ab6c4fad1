"""Computes the digests of a file and of each of its parts in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from blake3 import blake3

from handler.artifacts.store.manifest import PART_SIZE, FileEntry

CHUNK = 4 * 1024 * 1024


def file_entry(path: Path, name: str) -> FileEntry:
    """Returns a file's size and digests, with `name` as its path in the entry. Holds `CHUNK` bytes in memory."""
    return entry_of(_chunks(path), name)


def entry_of(chunks: Iterable[bytes], name: str) -> FileEntry:
    """Returns size and digests of content that comes in chunks of any size."""
    whole, part = blake3(), blake3()
    size, parts = 0, []
    for chunk in chunks:
        whole.update(chunk)
        rest = memoryview(chunk)
        while rest:
            taken = rest[: PART_SIZE - size % PART_SIZE]
            part.update(taken)
            size += len(taken)
            rest = rest[len(taken) :]
            if size % PART_SIZE == 0:
                parts.append(part.hexdigest())
                part = blake3()
    if size % PART_SIZE:
        parts.append(part.hexdigest())
    return FileEntry(name, size, whole.hexdigest(), tuple(parts) if len(parts) > 1 else ())


def _chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            yield chunk
