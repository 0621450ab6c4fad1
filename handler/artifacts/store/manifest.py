"""The manifest of an entry: path, size and digests of every file, and what it was compiled from and with.

A manifest is written last: without it an entry does not exist for readers. The digest is BLAKE3, which runs at 4 GB/s
on one core where SHA-256 runs at 0.2 (measured). So digests cost almost nothing beside a restore.

The JSON document is an envelope: `{"schema": 1, "signature": {...} or null, "manifest": {...}}`. The signature covers
the exact bytes of `manifest`. So it is checked before they are parsed, and needs no canonical form of the JSON. The
input is untrusted, so every size has a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from blake3 import blake3

from handler.artifacts.store.manifest_signature import Signature, Signer
from handler.json_value import Json
from handler.storage.object_store import SMALL
from handler.storage.safe_paths import confined_all
from handler.storage.storage_errors import InvalidManifest, TooLarge, UnknownSchema, UnsafePath

SCHEMA = 1
# Files are downloaded and checked in parts of this size. Each part has its own digest, so parts can arrive in any order
# over several connections, and an interrupted restore resumes with the parts that it has.
PART_SIZE = 16 * 1024 * 1024
# A file is digested in pieces of this size.
CHUNK = 4 * 1024 * 1024
MOST_FILES = 100_000
MOST_BYTES = SMALL
# The key's fields and the machine have a few KB. Larger ones were not written by this software and are not decoded.
MOST_FIELDS_BYTES = 1024 * 1024
# Values in the key's fields, and how deep they may be nested: they are compared recursively when a miss is explained.
MOST_FIELDS, DEEPEST_FIELD = 10_000, 64

Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
# Up to the last second that a date can have.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=253_402_300_799)]


class FileEntry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """One file of an entry.

    :param path: relative, `/`-separated, below the entry. It is checked when a manifest is read.
    :param size: bytes.
    :param digest: BLAKE3 of the content in hex, which is also the name of its object.
    :param parts: BLAKE3 of each PART_SIZE piece, in order. Empty for a file of one part: `digest` is its digest.
    """

    path: str
    size: Size
    digest: Digest
    parts: tuple[Digest, ...] = ()

    @classmethod
    def of_chunks(cls, chunks: Iterable[bytes], path: str) -> FileEntry:
        """Returns size and digests of content that comes in chunks of any size. One pass computes all digests."""
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
        return cls(path, size, whole.hexdigest(), tuple(parts) if len(parts) > 1 else ())

    @classmethod
    def of_file(cls, file: Path, path: str) -> FileEntry:
        """Returns size and digests of a file on this machine. Holds `CHUNK` bytes in memory."""
        return cls.of_chunks(_chunks(file), path)

    def ranges(self) -> Iterator[tuple[int, int, str]]:
        """Yields offset, length and digest of each part. An empty file has none."""
        digests = self.parts or (self.digest,)
        for number, offset in enumerate(range(0, self.size, PART_SIZE)):
            yield offset, min(PART_SIZE, self.size - offset), digests[number]

    def require_parts(self, where: str) -> None:
        """:raises InvalidManifest: there is not a digest for each of the file's parts."""
        expected = -(-self.size // PART_SIZE)
        if self.size < 0 or len(self.parts) != (expected if expected > 1 else 0):
            raise InvalidManifest(where, f"{self.path!r} has {self.size} bytes and {len(self.parts)} digests of parts")


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


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    schema: int
    manifest: msgspec.Raw
    signature: Signature | None = None


class _Schema(msgspec.Struct):
    schema: int


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    """A `Manifest` whose mappings are not decoded yet."""

    key: Digest
    kind: Literal["graph", "weights"]
    fields: msgspec.Raw
    files: tuple[FileEntry, ...]
    created: Seconds
    compile_seconds: Seconds | None
    machine: msgspec.Raw


# Made at import, as in `handler.artifacts.compile_caches.neff_store`: manifests are read by several threads.
_SCHEMAS = msgspec.json.Decoder(_Schema)
_ENVELOPES = msgspec.json.Decoder(_Envelope)
_DOCUMENTS = msgspec.json.Decoder(_Document)


def encode(manifest: Manifest, signer: Signer | None = None) -> bytes:
    """Encodes a manifest. It is signed if there is a signer.

    :raises UnsafePath: the path of a file is unsafe.
    """
    document = _Document(
        key=manifest.key,
        kind=manifest.kind,  # type: ignore[arg-type]
        fields=msgspec.Raw(msgspec.json.encode(manifest.fields)),
        files=manifest.files,
        created=manifest.created,
        compile_seconds=manifest.compile_seconds,
        machine=msgspec.Raw(msgspec.json.encode(manifest.machine)),
    )
    body = msgspec.json.encode(document)
    _decode_document(body, "(to be written)")
    signature = signer.sign(body) if signer else None
    return msgspec.json.encode(_Envelope(SCHEMA, msgspec.Raw(body), signature))


def decode(body: bytes, where: str, signer: Signer | None = None) -> Manifest:
    """Decodes a manifest and checks everything in it.

    :param where: its URI, for error messages.
    :param signer: if given, a manifest that is not signed with its key is rejected.
    :raises InvalidManifest: it is not JSON, lacks a field, is too large, is nested too deeply, or has clashing paths.
    :raises SignatureRefused: it is not signed with the key.
    """
    if len(body) > MOST_BYTES:
        raise TooLarge(where, len(body), MOST_BYTES)
    try:
        schema = _SCHEMAS.decode(body).schema
        if schema != SCHEMA:
            raise UnknownSchema(where, schema, SCHEMA)
        envelope = _ENVELOPES.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidManifest(where, str(error)[:300]) from None
    inner = bytes(envelope.manifest)
    if signer is not None:
        signer.check(inner, envelope.signature, where)
    return _decode_document(inner, where)


def _decode_document(body: bytes, where: str) -> Manifest:
    try:
        document = _DOCUMENTS.decode(body)
        if len(document.files) > MOST_FILES:
            raise InvalidManifest(where, f"it lists {len(document.files):,} files; at most {MOST_FILES:,} are allowed")
        if max(len(bytes(document.fields)), len(bytes(document.machine))) > MOST_FIELDS_BYTES:
            raise InvalidManifest(where, f"its fields have more than {MOST_FIELDS_BYTES:,} bytes")
        fields = msgspec.json.decode(document.fields, type=dict[str, Any])
        machine = msgspec.json.decode(document.machine, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidManifest(where, str(error)[:300]) from None
    _require_small(fields, where)
    try:
        confined_all([file.path for file in document.files])
    except UnsafePath as error:
        raise InvalidManifest(where, error.message.rstrip(".")) from error
    for file in document.files:
        file.require_parts(where)
    return Manifest(
        key=document.key,
        kind=document.kind,
        fields=fields,
        files=document.files,
        created=document.created,
        compile_seconds=document.compile_seconds,
        machine=machine,
    )


def _require_small(fields: Json, where: str) -> None:
    """:raises InvalidManifest: the fields are nested too deeply, or are too many."""
    count, values = 0, [fields]
    for _ in range(DEEPEST_FIELD + 1):
        count += len(values)
        values = [item for value in values for item in _items(value)]
        if not values:
            break
    else:
        raise InvalidManifest(where, f"its fields are nested more than {DEEPEST_FIELD} deep")
    if count > MOST_FIELDS:
        raise InvalidManifest(where, f"it has {count:,} fields; at most {MOST_FIELDS:,} are allowed")


def _items(value: Json) -> Iterable[Json]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            yield chunk
