"""Signs GET requests for S3 objects, which are then sent over plain HTTP connections.

boto3 downloads about 200 MB/s per process and is bound by its own CPU time (benchmarks/README.md), so the bytes do not
go through it. Endpoint, addressing style, credentials, CA bundle and signature remain botocore's.
"""

from __future__ import annotations

import os
import ssl
import threading
from http.client import HTTPConnection, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from handler.storage.s3_errors import translated
from handler.storage.storage_errors import CredentialsRefused

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

# A key that every addressing style leaves unchanged. The part of the URL before it is the address of the bucket.
SAMPLE_KEY = "key"


class S3Requests:
    """Address, credentials and TLS settings of one bucket. Thread-safe. Sends no request itself.

    A CA bundle is taken from AWS_CA_BUNDLE or REQUESTS_CA_BUNDLE, not from a configuration file.

    :param client: the client that gives the bucket's address. By default one is created. That takes as long as
        restoring 60 MB (measured), so the client of the store is shared.
    :raises CredentialsRefused: there are no credentials.
    """

    def __init__(self, bucket: str, client: S3Client | None = None) -> None:
        import boto3

        session = boto3.session.Session()
        credentials = session.get_credentials()
        if credentials is None:
            raise CredentialsRefused(f"s3://{bucket}", "there are none")
        self._credentials = credentials
        address = _address(client or session.client("s3"), bucket)
        parts = urlsplit(address.url)
        self._scheme, self._host, self._port = parts.scheme, parts.hostname or "", parts.port
        self._netloc = parts.netloc
        self._path = parts.path.removesuffix(SAMPLE_KEY)
        self._region = address.region
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None

    def connect(self, timeout: float) -> HTTPConnection:
        """Returns a connection that is not opened yet. `timeout` is in seconds."""
        if self._scheme == "http":
            return HTTPConnection(self._host, self._port, timeout=timeout)
        return HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls())

    def signed(self, key: str, byte_range: str | None) -> tuple[str, dict[str, str]]:
        """Returns path and headers of a GET, signed in the headers: bucket policies may forbid presigned URLs.

        :param byte_range: the value of the `Range` header. None requests the whole object.
        :raises CredentialsRefused: the credentials have expired and cannot be renewed.
        """
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        path = self._path + quote(key, safe="/~")
        headers = {"Range": byte_range} if byte_range else {}
        request = AWSRequest("GET", f"{self._scheme}://{self._netloc}{path}", headers=headers)
        with translated(f"{self._netloc}{path}", "s3:GetObject"):
            S3SigV4Auth(self._credentials.get_frozen_credentials(), "s3", self._region).add_auth(request)
        return path, dict(request.headers.items())

    def _tls(self) -> ssl.SSLContext:
        from botocore.httpsession import get_cert_path

        bundle = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")
        with self._lock:
            if self._context is None:
                self._context = ssl.create_default_context(cafile=bundle or get_cert_path(True))
            return self._context


class _Address(Exception):
    """Carries the address that botocore would send a request to. Raising it stops the request."""

    def __init__(self, url: str, region: str) -> None:
        self.url, self.region = url, region


def _address(client: S3Client, bucket: str) -> _Address:
    """Returns the URL of a sample key and the region that botocore signs for. Nothing is sent.

    Both are taken from a signed request. A presigned URL may lead to S3's global endpoint instead.
    """
    thread = threading.get_ident()

    def stop(request: Any, **rest: object) -> None:
        if threading.get_ident() == thread:
            # AWS4-HMAC-SHA256 Credential=<access key>/<date>/<region>/s3/aws4_request, SignedHeaders=...
            credential = request.headers["Authorization"].partition("Credential=")[2].partition(",")[0]
            raise _Address(request.url, credential.split("/")[-3])

    event = "request-created.s3"  # botocore signs in a handler of this event, so ours must run last
    client.meta.events.register_last(event, stop)
    try:
        with translated(f"s3://{bucket}", "s3:GetObject"):
            client.head_object(Bucket=bucket, Key=SAMPLE_KEY)
    except _Address as address:
        return address
    finally:
        client.meta.events.unregister(event, stop)
    raise AssertionError("unreachable")
