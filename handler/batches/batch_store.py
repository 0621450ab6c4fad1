"""Keeps files, batches and replies in an object store: a directory, or a prefix of a bucket.

files/<id>/file.json, files/<id>/content
batches/<id>/batch.json
batches/<id>/replies/<number>-<process>    lines with replies; never changed, so that a kill loses none of them
"""

from __future__ import annotations

import re
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from handler.batches.batch_objects import BATCH_PREFIX, FILE_PREFIX, BatchObject, FileObject, RecordDamaged, new_id
from handler.errors import NothingStored
from handler.storage.object_store import ObjectStore
from handler.storage.storage_errors import NotFound, StoreUnavailable

IDS: Final = re.compile(rf"(?:{FILE_PREFIX}|{BATCH_PREFIX})[0-9a-f]{{32}}")

Record = TypeVar("Record", FileObject, BatchObject)
# msgspec inspects a type when it first meets it, and crashes if two threads do so at the same time. So it is done here.
_DECODERS: Final[dict[type[FileObject | BatchObject], msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind) for kind in (FileObject, BatchObject)
}


class BatchStore:
    """The files, batches and replies below one root. Thread-safe: no object is changed but `batch.json`."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._process = uuid.uuid4().hex[:8]
        self._written = 0

    def add_file(self, filename: str, purpose: str, pieces: Iterable[bytes], identity: str = "") -> FileObject:
        """:param identity: the file's id, whose file is replaced if there is one. Default: a new one."""
        identity, size = identity or new_id(FILE_PREFIX), 0
        try:
            with tempfile.NamedTemporaryFile() as file:
                for piece in pieces:
                    size += file.write(piece)
                file.flush()
                self._objects.upload(f"files/{identity}/content", Path(file.name))
        except OSError as error:
            raise StoreUnavailable("the directory for temporary files", error.strerror or str(error)) from error
        added = FileObject(id=identity, bytes=size, created_at=int(time.time()), filename=filename, purpose=purpose)
        self._objects.put(f"files/{identity}/file.json", msgspec.json.encode(added))
        return added

    def file(self, identity: str, param: str = "file_id") -> FileObject:
        """:raises NothingStored, RecordDamaged: there is no such file, or its record cannot be read."""
        return self._record(FileObject, identity, f"files/{identity}/file.json", param)

    def content(self, identity: str, param: str = "file_id") -> Iterator[bytes]:
        """The bytes of a file, in pieces.

        :raises NothingStored: there is no such file. With the first piece: its content is gone.
        :raises RecordDamaged: with the last piece: its content has another size than its record says.
        """
        return self._pieces(self.file(identity, param), param)

    def delete_file(self, identity: str) -> None:
        """:raises NothingStored: there is no such file."""
        self.file(identity)
        self._objects.delete(f"files/{identity}/file.json")
        self._objects.delete(f"files/{identity}/content")

    def file_ids(self) -> list[str]:
        """The ids of all files, the newest first."""
        return self._ids("files/", "/file.json")

    def save(self, batch: BatchObject) -> None:
        self._objects.put(f"batches/{batch.id}/batch.json", msgspec.json.encode(batch))

    def batch(self, identity: str) -> BatchObject:
        """:raises NothingStored, RecordDamaged: there is no such batch, or its record cannot be read."""
        return self._record(BatchObject, identity, f"batches/{identity}/batch.json", "batch_id")

    def batch_ids(self) -> list[str]:
        """The ids of all batches, the newest first."""
        return self._ids("batches/", "/batch.json")

    def add_replies(self, identity: str, lines: Iterable[bytes]) -> None:
        """Writes replies. They are stored when this returns."""
        self._written += 1
        name = f"{time.time_ns():020d}{self._written:08d}-{self._process}"
        self._objects.put(f"batches/{identity}/replies/{name}", b"".join(line + b"\n" for line in lines))

    def replies(self, identity: str) -> Iterator[bytes]:
        """The lines of all replies."""
        for found in self._objects.list(f"batches/{identity}/replies/"):
            yield from b"".join(self._objects.read(found.key)).splitlines()

    def _pieces(self, file: FileObject, param: str) -> Iterator[bytes]:
        key, left = f"files/{file.id}/content", file.bytes
        try:
            for piece in self._objects.read(key):
                left -= len(piece)
                if left < 0:
                    break
                yield piece
        except NotFound:
            raise NothingStored(f"the content of '{file.id}' is gone", param) from None
        if left:
            raise RecordDamaged(key, f"it does not have the {file.bytes:,} bytes of its record")

    def _ids(self, prefix: str, ending: str) -> list[str]:
        found = [each.key for each in self._objects.list(prefix) if each.key.endswith(ending)]
        return sorted((key.removeprefix(prefix).removesuffix(ending) for key in found), reverse=True)

    def _record(self, kind: type[Record], identity: str, key: str, param: str) -> Record:
        try:
            if IDS.fullmatch(identity):
                record: Record = _DECODERS[kind].decode(self._objects.get(key)[0])
                return record
        except NotFound:
            pass
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RecordDamaged(key, str(error)) from error
        raise NothingStored(f"there is no '{identity[:100]}' here", param)
