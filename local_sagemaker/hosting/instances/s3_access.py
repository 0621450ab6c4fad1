"""Access to the local S3, with its errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError


def local_client(service: str, endpoint_url: str, region: str, **options: Any) -> Any:
    """Returns a boto3 client, which uses no proxy. Each has its own session, so threads can create several at once.

    :param options: the options of botocore's Config.
    """
    session = boto3.Session("local", "local", region_name=region)
    return session.client(service, endpoint_url=endpoint_url, config=Config(proxies={}, **options))  # type: ignore[call-overload]


if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

URI = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9])(?:/(?P<key>.*))?", re.DOTALL)
HTTPS = re.compile(r"https://s3[.\-][^/]*amazonaws\.com/(?P<bucket>[^/]+)/(?P<key>.*)", re.DOTALL)


class ObjectError(Exception):
    """An object or bucket cannot be read or written."""


@dataclass(frozen=True, slots=True)
class S3Location:
    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> S3Location:
        """Parses an S3 URI.

        :raises ObjectError: the URI has another form.
        """
        found = URI.fullmatch(uri) or HTTPS.fullmatch(uri)
        if not found:
            raise ObjectError(f"{uri} is not of the form s3://bucket/key")
        return cls(found["bucket"], found["key"] or "")

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


class Objects:
    """Reads and writes objects with a boto3 client. All errors are ObjectError."""

    def __init__(self, endpoint_url: str, region: str) -> None:
        options = {"s3": {"addressing_style": "path"}, "max_pool_connections": 64}
        self._client: S3Client = local_client("s3", endpoint_url, region, **options)

    def exists(self, uri: str, prefix: bool) -> bool:
        """Whether there is an object, or any object below a prefix. A URI of another form names none.

        :raises ObjectError: S3 does not say so, or cannot be reached.
        """
        try:
            location = S3Location.parse(uri)
        except ObjectError:
            return False
        with _errors(location, "looked up"):
            try:
                if prefix:
                    listed = self._client.list_objects_v2(Bucket=location.bucket, Prefix=location.key, MaxKeys=1)
                    return bool(listed.get("Contents"))
                self._client.head_object(Bucket=location.bucket, Key=location.key)
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                    return False
                raise
        return True

    def keys(self, prefix: S3Location) -> list[str]:
        """Returns the keys below a prefix.

        :raises ObjectError: the bucket cannot be listed.
        """
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=prefix.bucket, Prefix=prefix.key)
        with _errors(prefix, "listed"):
            return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def download(self, location: S3Location, to: Path) -> None:
        """Downloads an object to a file.

        :raises ObjectError: the object cannot be read.
        """
        with _errors(location, "read"):
            self._client.download_file(location.bucket, location.key, str(to))

    def read(self, location: S3Location, most: int) -> bytes:
        """Returns the content of an object.

        :raises ObjectError: the object cannot be read, or has more than ``most`` bytes.
        """
        with _errors(location, "read"):
            reply = self._client.get_object(Bucket=location.bucket, Key=location.key)
            if reply["ContentLength"] > most:
                raise ObjectError(f"{location} has {reply['ContentLength']} bytes, more than the limit of {most}")
            return reply["Body"].read()

    def write(self, location: S3Location, body: bytes, content_type: str | None = None) -> None:
        """Writes an object.

        :raises ObjectError: the object cannot be written.
        """
        more: Any = {"ContentType": content_type} if content_type else {}
        with _errors(location, "written"):
            self._client.put_object(Bucket=location.bucket, Key=location.key, Body=body, **more)


@contextmanager
def _errors(location: S3Location, done: str) -> Iterator[None]:
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise ObjectError(f"{location} can't be {done}: {error}") from error
