"""An object store below a prefix of an S3 bucket. Conditional writes use S3's `If-None-Match: *` and `If-Match`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handler.storage.object_store import SMALL, Location, ObjectInfo
from handler.storage.retry import BODY_ATTEMPTS, CONDITIONAL_ATTEMPTS, OBJECTS, WHOLE_OBJECTS, Retry
from handler.storage.s3_client import list_objects, make_client
from handler.storage.s3_errors import translated
from handler.storage.storage_errors import Conflict, NotFound, StoreUnavailable, TooLarge

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

CHUNK = 1024 * 1024
UPLOAD_PART = 16 * 1024 * 1024


class S3Objects:
    """Implements `ObjectStore`. Credentials, region and endpoint are botocore's own (`AWS_ENDPOINT_URL` for a server).

    :param client: the client to use. By default two are created with the first requests: one for objects that are read
        or written as a whole, and one for the others.
    """

    def __init__(self, bucket: str, prefix: str = "", client: S3Client | None = None) -> None:
        self.bucket = bucket
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._clients = {} if client is None else dict.fromkeys((OBJECTS, WHOLE_OBJECTS), client)
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def client(self) -> S3Client:
        return self._client_with(OBJECTS)

    def _client_with(self, retry: Retry) -> S3Client:
        with self._lock:
            if retry not in self._clients:
                self._clients[retry] = make_client(retry)
            return self._clients[retry]

    def location(self, key: str) -> Location:
        return Location(self._uri(key), bucket=self.bucket, key=self.prefix + key)

    def get(self, key: str, *, limit: int = SMALL) -> tuple[bytes, str]:
        for _ in range(BODY_ATTEMPTS - 1):
            try:
                return self._get(key, limit)
            except StoreUnavailable:
                continue
        return self._get(key, limit)

    def _get(self, key: str, limit: int) -> tuple[bytes, str]:
        with translated(self._uri(key), "s3:GetObject"):
            reply = self._client_with(WHOLE_OBJECTS).get_object(Bucket=self.bucket, Key=self.prefix + key)
            with closing(reply["Body"]) as stream:
                if reply["ContentLength"] > limit:
                    raise TooLarge(self._uri(key), reply["ContentLength"], limit)
                return stream.read(), reply["ETag"]

    def put(self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        condition: dict[str, Any] = {}
        if if_absent:
            condition["IfNoneMatch"] = "*"
        if if_match is not None:
            condition["IfMatch"] = if_match
        for attempt in range(CONDITIONAL_ATTEMPTS):
            try:
                with translated(self._uri(key), "s3:PutObject"):
                    client = self._client_with(WHOLE_OBJECTS)
                    return client.put_object(Bucket=self.bucket, Key=self.prefix + key, Body=body, **condition)["ETag"]
            except (Conflict, NotFound) as error:
                content, etag = self._content(key, len(body))
                if content == body:
                    return etag
                repeat = isinstance(error, Conflict) and error.retry
                if not repeat or attempt == CONDITIONAL_ATTEMPTS - 1:
                    raise Conflict(self._uri(key)) from error
        raise AssertionError("unreachable")

    def upload(self, key: str, path: Path) -> None:
        from boto3.exceptions import S3UploadFailedError
        from boto3.s3.transfer import TransferConfig

        parts = TransferConfig(
            multipart_threshold=2 * UPLOAD_PART, multipart_chunksize=UPLOAD_PART, max_concurrency=4, use_threads=True
        )
        with translated(self._uri(key), "s3:PutObject"):
            try:
                self.client.upload_file(str(path), self.bucket, self.prefix + key, Config=parts)
            except S3UploadFailedError as error:
                raise (error.__context__ or error) from error

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        position, end = start, None if length is None else start + length
        options: dict[str, Any] = {}
        while position != end:
            began = position
            if position or end is not None:
                options["Range"] = f"bytes={position}-{'' if end is None else end - 1}"
            try:
                with translated(self._uri(key), "s3:GetObject"):
                    reply = self.client.get_object(Bucket=self.bucket, Key=self.prefix + key, **options)
                    options["IfMatch"] = reply["ETag"]
                    with closing(reply["Body"]) as stream:
                        for chunk in stream.iter_chunks(CHUNK):
                            yield chunk
                            position += len(chunk)
                return
            except StoreUnavailable:  # a body that was cut off is gone on with
                if position == began:
                    raise

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        condition: dict[str, Any] = {} if if_match is None else {"IfMatch": if_match}
        try:
            with translated(self._uri(key), "s3:DeleteObject"):
                self.client.delete_object(Bucket=self.bucket, Key=self.prefix + key, **condition)
        except NotFound as error:
            if if_match is not None:
                raise Conflict(self._uri(key)) from error

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        with translated(self._uri(prefix), "s3:ListBucket"):
            for info in list_objects(self.client, self.bucket, self.prefix + prefix):
                yield replace(info, key=info.key.removeprefix(self.prefix))

    def head(self, key: str) -> ObjectInfo:
        with translated(self._uri(key), "s3:GetObject"):
            reply = self._client_with(WHOLE_OBJECTS).head_object(Bucket=self.bucket, Key=self.prefix + key)
        return ObjectInfo(key, reply["ContentLength"], reply["LastModified"].timestamp(), reply["ETag"])

    def _content(self, key: str, limit: int) -> tuple[bytes | None, str]:
        try:
            return self.get(key, limit=limit)
        except (NotFound, TooLarge):
            return None, ""

    def _uri(self, key: str) -> str:
        return f"s3://{self.bucket}/{self.prefix}{key}"
