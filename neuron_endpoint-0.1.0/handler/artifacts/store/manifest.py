"""The manifest of an entry: path, size and digests of every file, and what it was compiled from and with.

A manifest is written last: without it an entry does not exist for readers. The digest is BLAKE3, which runs at 4 GB/s
on one core where SHA-256 runs at 0.2 (measured). So digests cost almost nothing beside a restore.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from handler.json_value import Json

SCHEMA = 1
# Files are downloaded and checked in parts of this size. Each part has its own digest, so parts can arrive in any order
# over several connections, and an interrupted restore resumes with the parts that it has.
PART_SIZE = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of an entry.

    :param path: relative, `/`-separated, below the entry. It is checked when a manifest is read.
    :param size: bytes.
    :param digest: BLAKE3 of the content in hex, which is also the name of its object.
    :param parts: BLAKE3 of each PART_SIZE piece, in order. Empty for a file of one part: `digest` is its digest.
    """

    path: str
    size: int
    digest: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """One entry.

    :param key: the key of the entry, in hex.
    :param kind: `graph` or `weights`. They have separate keys, so that a fine-tuned model of the same shape reuses the
        graph.
    :param fields: the fields that the key was computed from, so that a miss can be explained.
    :param files: the files, in the order in which the engine needs them.
    :param created: seconds since the epoch.
    :param compile_seconds: how long the compile took; None if unknown.
    :param machine: the machine that compiled it (instance type, host name).
    """

    key: str
    kind: str
    fields: Mapping[str, Json]
    files: tuple[FileEntry, ...]
    created: float
    compile_seconds: float | None = None
    machine: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA
