"""Reads the small files that a configuration is made of: from disk or from S3, and never more than a bound.

The only I/O of this package. Loaders take a `Fetch`, so that tests (and callers with a cache) can put in their own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

# Bytes. The largest real files of the kind are NxDI's saved configurations, some 20 KB.
LIMIT = 256 * 1024
# A path or an s3:// URI of one object -> its bytes; None when there is nothing.
Fetch = Callable[[str], bytes | None]


class Unreadable(Exception):
    """The file may be there, but it cannot be read. The message is fit for a user."""


def fetch(location: str) -> bytes | None:
    """The file's bytes, or None when it does not exist.

    S3 is reached with botocore's own credentials, region and endpoint; at most LIMIT + 1 bytes are asked for.

    :raises Unreadable: too large, no permission, no such bucket, no connection, a directory.
    """
    body = _from_s3(location) if location.startswith("s3://") else _from_disk(location)
    if body is not None and len(body) > LIMIT:
        raise Unreadable(f"it is larger than {LIMIT:,} bytes")
    return body


def _from_disk(location: str) -> bytes | None:
    try:
        with Path(location).open("rb") as file:
            return file.read(LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise Unreadable(f"it cannot be read ({getattr(error, 'strerror', None) or error})") from None


def _from_s3(location: str) -> bytes | None:
    parts = urlsplit(location)
    key = parts.path.lstrip("/")
    if not parts.netloc or not key:
        raise Unreadable("it names no object: write s3://bucket/key")
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        reply = _client().get_object(Bucket=parts.netloc, Key=key, Range=f"bytes=0-{LIMIT}")
        return reply["Body"].read(LIMIT + 1)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code in {"NoSuchKey", "404"}:
            return None
        if code == "InvalidRange":  # an empty object has no bytes to ask for
            return b""
        raise Unreadable(f"S3 refuses it ({code}): check the bucket, s3:GetObject and s3:ListBucket") from None
    except (BotoCoreError, ValueError) as error:
        raise Unreadable(f"S3 cannot be reached ({error})") from None


def _client() -> S3Client:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3", config=Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "max_attempts": 3})
    )
