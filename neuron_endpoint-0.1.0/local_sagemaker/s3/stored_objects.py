"""Stores the objects of S3 in files, so that they survive a killed service."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

BUCKET = "bucket.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LOCKS = 64


@dataclass(frozen=True, slots=True)
class KeptObject:
    """A stored object.

    :ivar body: a file open at its first byte. The caller closes it.
    """

    key: str
    headers: dict[str, str]
    body: BinaryIO


class KeptObjects:
    """The stored objects: a directory for each bucket, a file for each object.

    A file has a line of JSON (key, headers), then the content. It is replaced by a rename, so it is always complete. It
    is not synced: a killed process loses nothing, but a power failure may.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._locks = [threading.Lock() for _ in range(LOCKS)]
        directory.mkdir(parents=True, exist_ok=True)
        for unfinished in directory.glob("*/*.unfinished"):
            unfinished.unlink()

    @contextmanager
    def turn(self, bucket: str, key: str) -> Iterator[None]:
        """A lock from reading an object until its file is written. Otherwise an older state could be written last."""
        with self._locks[hash((bucket, key)) % LOCKS]:
            yield

    def keep_bucket(self, bucket: str, request: dict[str, str]) -> None:
        """Stores a bucket.

        :param request: the request that created it.
        """
        directory = self._bucket(bucket)
        directory.mkdir(exist_ok=True)
        _write(directory / BUCKET, json.dumps(request).encode(), b"")

    def drop_bucket(self, bucket: str) -> None:
        directory = self._bucket(bucket)
        if directory.exists():
            for file in directory.iterdir():
                file.unlink()
            directory.rmdir()

    def keep(self, bucket: str, key: str, headers: dict[str, str], body: bytes) -> None:
        head = json.dumps({"key": key, "headers": headers}).encode()
        _write(self._file(bucket, key), head + b"\n", body)

    def drop(self, bucket: str, key: str) -> None:
        self._file(bucket, key).unlink(missing_ok=True)

    def buckets(self) -> Iterator[tuple[str, dict[str, str]]]:
        for directory in sorted(self._directory.iterdir()):
            if (made := directory / BUCKET).exists():
                yield directory.name, json.loads(made.read_text(encoding="utf-8"))

    def objects(self, bucket: str) -> Iterator[KeptObject]:
        for file in sorted(self._bucket(bucket).iterdir()):
            if file.name != BUCKET:
                with file.open("rb") as body:
                    head = json.loads(body.readline())
                    yield KeptObject(head["key"], head["headers"], body)

    def keys(self, bucket: str) -> list[str]:
        return [each.key for each in self.objects(bucket)] if self._bucket(bucket).exists() else []

    def _bucket(self, bucket: str) -> Path:
        """Returns the directory of a bucket.

        :raises ValueError: the name is not valid for a directory.
        """
        if not NAME.fullmatch(bucket):
            raise ValueError(f"{bucket!r} is not a bucket name")
        return self._directory / bucket

    def _file(self, bucket: str, key: str) -> Path:
        return self._bucket(bucket) / hashlib.sha256(key.encode()).hexdigest()


def _write(path: Path, head: bytes, body: bytes) -> None:
    unfinished = path.with_name(f"{path.name}.{threading.get_ident()}.unfinished")
    with unfinished.open("wb") as file:
        file.write(head)
        file.write(body)
    unfinished.replace(path)
