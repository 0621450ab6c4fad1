"""Uploads one large file in parts, and resumes an interrupted upload of the same file.

boto3's own transfer manager aborts an upload that it cannot finish. Here the parts stay in S3 (a bucket should have a
rule that expires unfinished uploads), and the next attempt sends only the missing parts. Parts are compared by MD5, or
by CRC32 if a KMS key changes the ETag.
"""

from __future__ import annotations

import hashlib
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handler.storage.s3_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

MIB = 1024 * 1024
PART = 32 * MIB
MOST_PARTS = 10_000
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Destination:
    """The object to write.

    :param more: further parameters of CreateMultipartUpload and PutObject: encryption, metadata.
    """

    client: S3Client
    bucket: str
    key: str
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The bytes of one upload. `kept` were in S3 from an earlier attempt."""

    sent: int = 0
    kept: int = 0


def part_size(size: int) -> int:
    """Returns the size of a part: PART, or more if S3's limit on the number of parts requires it."""
    least = -(-size // MOST_PARTS)
    return max(PART, -(-least // MIB) * MIB)


def upload(path: Path, to: Destination, add: Callable[[int], None], part: int | None = None) -> Uploaded:
    """Uploads a file. The object appears when the upload is complete.

    :param add: called with the bytes of each part that is in S3.
    :raises ArtifactError: the upload failed. The parts stay for the next attempt.
    """
    size = path.stat().st_size
    each = part or part_size(size)
    count = max(1, -(-size // each))
    with translated(to.uri, "s3:PutObject"):
        upload_id, present = _begun(to, each, size)

    def send(number: int) -> tuple[CompletedPartTypeDef, int]:
        body = _read(path, (number - 1) * each, each)
        crc = b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
        known = present.get(number)
        there = known is not None and _same(known, body, crc)
        if not there:
            with translated(to.uri, "s3:PutObject"):
                known = to.client.upload_part(
                    Bucket=to.bucket, Key=to.key, UploadId=upload_id, PartNumber=number, Body=body, ChecksumCRC32=crc
                )
        assert known is not None
        add(len(body))
        return {"PartNumber": number, "ETag": known["ETag"], "ChecksumCRC32": crc}, len(body) if there else 0

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="upload") as pool:
        done = list(pool.map(send, range(1, count + 1)))
    with translated(to.uri, "s3:PutObject"):
        to.client.complete_multipart_upload(
            Bucket=to.bucket, Key=to.key, UploadId=upload_id, MultipartUpload={"Parts": [part for part, _ in done]}
        )
    kept = sum(there for _, there in done)
    return Uploaded(sent=size - kept, kept=kept)


def _begun(to: Destination, each: int, size: int) -> tuple[str, dict[int, Any]]:
    """Returns an upload and its parts by number: the latest unfinished one with parts of this size, or a new one."""
    pages = to.client.get_paginator("list_multipart_uploads").paginate(Bucket=to.bucket, Prefix=to.key)
    uploads = [upload for page in pages for upload in page.get("Uploads", []) if upload["Key"] == to.key]
    for upload in sorted(uploads, key=lambda upload: upload["Initiated"], reverse=True):
        listed = to.client.get_paginator("list_parts").paginate(
            Bucket=to.bucket, Key=to.key, UploadId=upload["UploadId"]
        )
        parts = {part["PartNumber"]: part for page in listed for part in page.get("Parts", [])}
        last = -(-size // each)
        if all(part["Size"] == each or number == last for number, part in parts.items()):
            return upload["UploadId"], parts
    begun = to.client.create_multipart_upload(Bucket=to.bucket, Key=to.key, ChecksumAlgorithm="CRC32", **to.more)
    return begun["UploadId"], {}


def _same(part: Mapping[str, Any], body: bytes, crc: str) -> bool:
    if part["Size"] != len(body):
        return False
    return part["ETag"].strip('"') == hashlib.md5(body, usedforsecurity=False).hexdigest() or (
        part.get("ChecksumCRC32") == crc
    )


def _read(path: Path, start: int, length: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(length)
