"""What an entry of the store is: every file's path, size and digests, and what it was compiled from and with.

A manifest is written last: an entry without one does not exist for a reader. blake3, because it runs at 4 GB/s on one
core where sha256 runs at 0.2 (measured), so that digests cost nothing beside a restore.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from handler.json_value import Json

SCHEMA = 1
# Files are fetched and checked in parts of this size: each has a digest of its own, so that parts can come in any
# order, from several connections, and a crashed restore goes on with the parts it has.
PART_SIZE = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file.

    :param path: relative, `/`-separated, confined to the entry: checked when a manifest is read.
    :param size: bytes.
    :param digest: blake3 of the content, hex; the name of the object that holds it.
    :param parts: blake3 of each PART_SIZE piece, in order; empty for a file of one part (then `digest` is its digest).
    """

    path: str
    size: int
    digest: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """One entry.

    :param key: the entry's key, hex.
    :param kind: `graph` or `weights`: keyed apart, so that a fine-tune of the same shape reuses the graph.
    :param fields: what the key was made of, in clear, so that a miss can be explained.
    :param files: in the order in which the engine needs them.
    :param created: seconds since the epoch.
    :param compile_seconds: how long it took; None where it is not known.
    :param machine: what compiled it (instance type, host name).
    """

    key: str
    kind: str
    fields: Mapping[str, Json]
    files: tuple[FileEntry, ...]
    created: float
    compile_seconds: float | None = None
    machine: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA
