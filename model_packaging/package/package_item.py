"""One file of a package, and where its content comes from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

CHUNK = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LocalFile:
    path: Path

    def chunks(self) -> Iterator[bytes]:
        with open(self.path, "rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                yield chunk


@dataclass(frozen=True, slots=True)
class S3File:
    """An S3 object in the version that was listed. So a replacement in the meantime is noticed."""

    client: S3Client
    bucket: str
    key: str
    etag: str

    def chunks(self) -> Iterator[bytes]:
        from handler.storage.s3_errors import translated

        with translated(f"s3://{self.bucket}/{self.key}", "s3:GetObject"):
            reply = self.client.get_object(Bucket=self.bucket, Key=self.key, IfMatch=self.etag)
            with closing(reply["Body"]) as stream:
                yield from stream.iter_chunks(CHUNK)


@dataclass(frozen=True, slots=True)
class GeneratedItem:
    """Content that is not in a file: a generated document."""

    body: bytes

    def chunks(self) -> Iterator[bytes]:
        yield self.body


@dataclass(frozen=True, slots=True)
class Item:
    """One file of a package.

    :param path: relative to the package, `/`-separated.
    :param size: bytes.
    :param origin: yields the content in order, some MB at a time.
    """

    path: str
    size: int
    origin: LocalFile | S3File | GeneratedItem
