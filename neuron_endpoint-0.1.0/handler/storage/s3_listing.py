"""Lists the objects below an S3 prefix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from handler.storage.object_store import ObjectInfo

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


def list_objects(client: S3Client, bucket: str, prefix: str, *, recursive: bool = True) -> Iterator[ObjectInfo]:
    """Yields every object whose key begins with `prefix`, sorted by key. Keys are relative to the bucket.

    :param recursive: False stops at the next `/` after the prefix.
    :raises ClientError, BotoCoreError: botocore's own errors. The caller turns them into its own.
    """
    options: dict[str, Any] = {} if recursive else {"Delimiter": "/"}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, **options):
        for item in page.get("Contents", []):
            yield ObjectInfo(item["Key"], item["Size"], item["LastModified"].timestamp(), item["ETag"])
