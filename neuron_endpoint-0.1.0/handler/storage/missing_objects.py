"""Tells a missing object from a denied one, for a role that may list only some prefixes of a bucket.

S3 answers a read of a missing object with 404 only to a caller with `s3:ListBucket`, and else with 403 (API reference,
GetObject). A policy that allows listing below a prefix does not count, because the read names no prefix. So a denied
read is followed by a listing of that key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

READS: Final = ("GetObject", "HeadObject")
ASKED: Final = "missing_objects_asked"


def tell_missing_objects(client: S3Client) -> S3Client:
    """Makes the client report a missing object as `NoSuchKey`, also where S3 says `AccessDenied`."""

    def remember(params: dict[str, Any], context: dict[str, Any], **rest: object) -> None:
        context[ASKED] = params.get("Bucket"), params.get("Key")

    def correct(parsed: dict[str, Any], context: dict[str, Any], **rest: object) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        error = parsed.get("Error", {})
        if error.get("Code") not in ("AccessDenied", "403"):
            return
        bucket, key = context[ASKED]
        try:
            found = client.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1).get("Contents", [])
        except (ClientError, BotoCoreError):
            return  # it may not list here either, so nobody knows
        if not any(item.get("Key") == key for item in found):
            error["Code"] = "NoSuchKey"
            parsed["ResponseMetadata"]["HTTPStatusCode"] = 404

    for read in READS:
        client.meta.events.register(f"provide-client-params.s3.{read}", remember)
        client.meta.events.register(f"after-call.s3.{read}", correct)
    return client
