"""Creates clients for S3, lists objects, and tells a missing object from a denied one."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from handler.storage.object_store import ObjectInfo
from handler.storage.retry import OBJECTS, Retry

if TYPE_CHECKING:
    from botocore.loaders import Loader
    from mypy_boto3_s3.client import S3Client

# Concurrent requests of one client: several uploads run at once, each in several parts.
CONNECTIONS: Final = 32
READS: Final = ("GetObject", "HeadObject")
ASKED: Final = "missing_objects_asked"
# The member of an error NoSuchBucket that says which bucket of the account has the nearest name.
NEAR_BUCKET: Final = "NearBucket"


def make_client(retry: Retry = OBJECTS, region: str | None = None) -> S3Client:
    """Creates an S3 client. What is not given is botocore's own (`AWS_ENDPOINT_URL` for a server)."""
    import boto3
    from botocore.session import get_session

    session = get_session()  # of its own: one session must not create clients in two threads at once
    session.register_component("data_loader", _data_loader())
    client = boto3.session.Session(region_name=region, botocore_session=session).client(
        "s3",
        config=retry.config(
            max_pool_connections=CONNECTIONS,
            # Our own digests are checked anyway. Some servers send the checksum of the whole file with a part.
            response_checksum_validation="when_required",
        ),
    )
    return tell_missing_objects(client)


@cache
def _data_loader() -> Loader:
    """botocore's files on its services. A client takes 65 ms with them, and 10 ms once the process has read them."""
    from botocore.session import get_session

    loader: Loader = get_session().get_component("data_loader")
    return loader


def list_objects(client: S3Client, bucket: str, prefix: str, *, recursive: bool = True) -> Iterator[ObjectInfo]:
    """Yields every object whose key begins with `prefix`, sorted by key. Keys are relative to the bucket.

    :param recursive: False stops at the next `/` after the prefix.
    :raises ClientError, BotoCoreError: botocore's own errors. The caller turns them into its own.
    """
    options: dict[str, Any] = {} if recursive else {"Delimiter": "/"}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, **options):
        for item in page.get("Contents", []):
            yield ObjectInfo(item["Key"], item["Size"], item["LastModified"].timestamp(), item["ETag"])


def tell_missing_objects(client: S3Client) -> S3Client:
    """Makes the client report a missing object as `NoSuchKey`, also where S3 says `AccessDenied`.

    S3 answers a read of a missing object with 404 only to a caller with `s3:ListBucket`, and else with 403 (API
    reference, GetObject). A role that may list only some prefixes does not count, because the read names no prefix. So
    a denied read is followed by a listing of that key. An error `NoSuchBucket` gets the nearest name of a bucket of
    the account, if they may be listed.
    """

    def remember(params: dict[str, Any], context: dict[str, Any], **rest: object) -> None:
        context[ASKED] = params.get("Bucket", ""), params.get("Key")

    def correct(parsed: dict[str, Any], context: dict[str, Any], model: Any, **rest: object) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        error, (bucket, key) = parsed.get("Error", {}), context[ASKED]
        try:
            if error.get("Code") == "NoSuchBucket" and bucket:
                names = [each["Name"] for each in client.list_buckets().get("Buckets", [])]
                error[NEAR_BUCKET] = "".join(f"; did you mean {name}?" for name in get_close_matches(bucket, names, 1))
            if error.get("Code") not in ("AccessDenied", "403") or model.name not in READS:
                return
            listed = client.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1).get("Contents", [])
        except (ClientError, BotoCoreError):
            return  # it may not list here either, so nobody knows
        if not any(item.get("Key") == key for item in listed):
            error["Code"] = "NoSuchKey"
            parsed["ResponseMetadata"]["HTTPStatusCode"] = 404

    client.meta.events.register("provide-client-params.s3", remember)
    client.meta.events.register("after-call.s3", correct)
    return client
