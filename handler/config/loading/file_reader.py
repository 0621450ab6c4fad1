"""Reads small configuration files from disk or S3, up to a size limit.

All I/O of `handler.config` is here. Loaders take a `Fetch`, so that tests and callers with a cache can pass their own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from handler.regular_files import open_regular
from handler.storage.retry import SMALL_FILES
from handler.storage.s3_client import make_client
from handler.storage.s3_errors import translated
from handler.storage.storage_errors import ArtifactError, EmptyRange, NotFound

# Bytes. The largest real files of this kind, NxDI's saved configurations, have about 20 KB.
LIMIT = 256 * 1024
# Takes a path or the s3:// URI of one object. Returns its bytes; None if there is no such file.
Fetch = Callable[[str], bytes | None]


class Unreadable(Exception):
    """A file that may exist but cannot be read. The message is written for users."""


def fetch(location: str) -> bytes | None:
    """The bytes of a file, or None if it does not exist.

    botocore finds S3's credentials, region and endpoint itself. At most LIMIT + 1 bytes are requested.

    :raises Unreadable: too large, no permission, no such bucket, no connection, or a directory.
    """
    body = _from_s3(location) if location.startswith("s3://") else _from_disk(location)
    if body is not None and len(body) > LIMIT:
        raise Unreadable(f"it is larger than {LIMIT:,} bytes")
    return body


def _from_disk(location: str) -> bytes | None:
    try:
        with open_regular(Path(location)) as file:
            return file.read(LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise Unreadable(f"it cannot be read ({getattr(error, 'strerror', None) or error})") from None


def _from_s3(location: str) -> bytes | None:
    bucket, _, key = location.removeprefix("s3://").partition("/")  # no URL parser: a key may contain "?" and "#"
    if not bucket or not key:
        raise Unreadable("it does not name an object: write s3://bucket/key")
    try:
        with translated(location, "s3:GetObject"):
            reply = make_client(SMALL_FILES).get_object(Bucket=bucket, Key=key, Range=f"bytes=0-{LIMIT}")
            return reply["Body"].read(LIMIT + 1)
    except NotFound:
        return None
    except EmptyRange:  # an empty object has no bytes to ask for
        return b""
    except (ArtifactError, ValueError) as error:
        raise Unreadable(str(error).rstrip(".")) from None
