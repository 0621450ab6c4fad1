"""Writes and reads manifests as JSON. The input is untrusted, so every size has a limit.

The document is an envelope: `{"schema": 1, "signature": {...} or null, "manifest": {...}}`. The signature covers the
exact bytes of `manifest`. So it is checked before they are parsed, and needs no canonical form of the JSON.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from handler.artifacts.store.manifest import PART_SIZE, SCHEMA, FileEntry, Manifest
from handler.artifacts.store.manifest_signature import Signature, Signer
from handler.storage.object_store import SMALL
from handler.storage.safe_paths import confined_all
from handler.storage.storage_errors import InvalidManifest, TooLarge, UnknownSchema, UnsafePath

MOST_FILES = 100_000
MOST_BYTES = SMALL
# The key's fields and the machine have a few KB. Larger ones were not written by this software and are not decoded.
MOST_FIELDS_BYTES = 1024 * 1024

Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    schema: int
    manifest: msgspec.Raw
    signature: Signature | None = None


class _Schema(msgspec.Struct):
    schema: int


class _File(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    path: str
    size: Size
    digest: Digest
    parts: list[Digest] = []


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    key: Digest
    kind: Literal["graph", "weights"]
    fields: msgspec.Raw
    files: list[_File]
    created: float
    compile_seconds: float | None
    machine: msgspec.Raw


# Made at import, as in `handler.artifacts.compile_caches.neff_store`: manifests are read by several threads.
_SCHEMAS = msgspec.json.Decoder(_Schema)
_ENVELOPES = msgspec.json.Decoder(_Envelope)
_DOCUMENTS = msgspec.json.Decoder(_Document)


def written(manifest: Manifest, signer: Signer | None = None) -> bytes:
    """Encodes a manifest. It is signed if there is a signer.

    :raises UnsafePath: the path of a file is unsafe.
    """
    document = _Document(
        key=manifest.key,
        kind=manifest.kind,  # type: ignore[arg-type]
        fields=msgspec.Raw(msgspec.json.encode(manifest.fields)),
        files=[_File(file.path, file.size, file.digest, list(file.parts)) for file in manifest.files],
        created=manifest.created,
        compile_seconds=manifest.compile_seconds,
        machine=msgspec.Raw(msgspec.json.encode(manifest.machine)),
    )
    body = msgspec.json.encode(document)
    _manifest(body, "(to be written)")
    signature = signer.sign(body) if signer else None
    return msgspec.json.encode(_Envelope(manifest.schema, msgspec.Raw(body), signature))


def read(body: bytes, where: str, signer: Signer | None = None) -> Manifest:
    """Decodes a manifest and checks everything in it.

    :param where: its URI, for error messages.
    :param signer: if given, a manifest that is not signed with its key is rejected.
    :raises InvalidManifest: it is not JSON, lacks a field, is too large, or has clashing paths.
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
    return _manifest(inner, where)


def _manifest(body: bytes, where: str) -> Manifest:
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
    try:
        confined_all([file.path for file in document.files])
    except UnsafePath as error:
        raise InvalidManifest(where, error.message.rstrip(".")) from error
    return Manifest(
        key=document.key,
        kind=document.kind,
        fields=fields,
        files=tuple(_entry(file, where) for file in document.files),
        created=document.created,
        compile_seconds=document.compile_seconds,
        machine=machine,
    )


def _entry(file: _File, where: str) -> FileEntry:
    expected = -(-file.size // PART_SIZE)
    if len(file.parts) != (expected if expected > 1 else 0):
        raise InvalidManifest(where, f"{file.path!r} has {file.size} bytes and {len(file.parts)} digests of parts")
    return FileEntry(file.path, file.size, file.digest, tuple(file.parts))
