"""Reads objects in S3 over plain HTTP connections, directly into the caller's buffers.

boto3 downloads about 200 MB/s per process and is bound by its own CPU time (benchmarks/README.md), so the bytes do not
go through it. Endpoint, addressing style, credentials, CA bundle and signature remain botocore's. `http.client` is as
fast as a bare socket here (measured). urllib3 is not: its `readinto` copies.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
import time
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, urlsplit

from handler.storage.retry import DOWNLOADS
from handler.storage.s3_client import make_client
from handler.storage.s3_errors import translated
from handler.storage.storage_errors import CredentialsMissing, NotFound, StoreUnavailable
from handler.storage.transfer.tls_connection import TlsConnection
from handler.storage.transfer.transfer import Interrupted, Locate, TransferFile

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

# Temporary errors ("Error responses" in S3's API reference). RequestTimeTooSkewed is one if the server's clock is
# wrong.
TEMPORARY_STATUS = {408, 429, 500, 502, 503, 504}
TEMPORARY_CODES = {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "RequestTimeTooSkewed"}
MOST_ERROR_BYTES = 16 * 1024
# A key that every addressing style leaves unchanged. The part of the URL before it is the address of the bucket.
SAMPLE_KEY = "key"


class S3Source:
    """A `TransferSource` over one bucket: its address, credentials and TLS settings. Thread-safe.

    A CA bundle is taken from AWS_CA_BUNDLE or REQUESTS_CA_BUNDLE, not from a configuration file.

    :param locate: returns where the object of a digest is. All are in the bucket.
    :param client: the client that gives the bucket's address. By default one is created. That takes as long as
        restoring 60 MB (measured), so the client of the store is shared.
    :raises CredentialsMissing: there are no credentials.
    """

    def __init__(self, bucket: str, locate: Locate, client: S3Client | None = None) -> None:
        import boto3

        credentials = boto3.session.Session().get_credentials()
        if credentials is None:
            raise CredentialsMissing(f"s3://{bucket}")
        self.locate, self._credentials = locate, credentials
        address = _address(client or make_client(), bucket)
        parts = urlsplit(address.url)
        self._scheme, self._host, self._port = parts.scheme, parts.hostname or "", parts.port
        self._netloc = parts.netloc
        self._path = parts.path.removesuffix(SAMPLE_KEY)
        self._region = address.region
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None

    def reader(self) -> S3Reader:
        return S3Reader(self)

    def uri(self, file: TransferFile) -> str:
        return self.locate(file.digest).uri

    def connect(self, timeout: float) -> HTTPConnection:
        """Returns a connection that is not opened yet. `timeout` is in seconds."""
        if self._scheme == "http":
            return HTTPConnection(self._host, self._port, timeout=timeout)
        return TlsConnection(self._host, self._port, timeout, self._tls())

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


class S3Reader:
    """A `PartReader` over S3. The connection is kept from one request to the next."""

    def __init__(self, source: S3Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._connection: HTTPConnection | None = None
        self._reply: HTTPResponse | None = None

    def open(self, file: TransferFile, offset: int, length: int, timeout: float) -> None:
        location = self._source.locate(file.digest)
        whole = offset == 0 and length == file.size
        path, headers = self._source.signed(location.key, None if whole else f"bytes={offset}-{offset + length - 1}")
        if location.etag:
            headers["If-Match"] = location.etag
        try:
            reply = self._reply = self._send(path, headers, timeout)
            if reply.status not in {200, 206}:
                self._refuse(reply, location.uri)
        except ssl.SSLCertVerificationError as error:
            raise StoreUnavailable(location.uri, f"{error.verify_message}; AWS_CA_BUNDLE names the CAs") from error
        except (OSError, HTTPException) as error:
            raise _interrupted(error) from error
        # A server on loopback may answer a range with 200. What counts is the range that it declares.
        sent = reply.getheader("Content-Range", "") if not whole else ""
        if reply.length != length or sent != ("" if whole else f"bytes {offset}-{offset + length - 1}/{file.size}"):
            raise Interrupted(f"{reply.length} ({sent or 'the whole object'}) of {length} bytes were sent")

    def readinto(self, buffer: memoryview) -> int:
        if self._reply is None:
            return 0
        try:
            return self._reply.readinto(buffer)
        except (OSError, HTTPException, ValueError) as error:  # ValueError: closed by `abort`
            raise _interrupted(error) from error

    def abort(self) -> None:
        with self._lock:
            held = self._connection.sock if self._connection else None
            if held is not None:
                try:
                    held.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # no longer connected

    def close(self) -> None:
        with self._lock:
            connection, self._connection, self._reply = self._connection, None, None
            if connection is not None:
                connection.close()

    def _send(self, path: str, headers: dict[str, str], timeout: float) -> HTTPResponse:
        connection = self._connection
        if connection is None or connection.sock is None:  # not opened yet, or closed by the server with its last reply
            connection = self._source.connect(min(DOWNLOADS.connect, timeout))
            connection.connect()
            with self._lock:
                self._connection = connection
        connection.sock.settimeout(timeout)
        connection.request("GET", path, headers=headers)
        return connection.getresponse()

    def _refuse(self, reply: HTTPResponse, uri: str) -> NoReturn:
        from botocore.exceptions import ClientError

        body = reply.read(MOST_ERROR_BYTES).decode(errors="replace")
        code, message = _element(body, "Code"), _element(body, "Message")
        if reply.status == 412:
            raise StoreUnavailable(uri, "the object has changed since it was listed")
        if code == "NoSuchKey":
            raise NotFound(uri)
        if reply.status in TEMPORARY_STATUS or code in TEMPORARY_CODES:
            clock = _clock_ahead(reply) if code == "RequestTimeTooSkewed" else None
            raise Interrupted(f"{reply.status} {code or reply.reason}", clock)
        error = {"Error": {"Code": code or str(reply.status), "Message": message}}
        with translated(uri, "s3:GetObject"):
            raise ClientError({**error, "ResponseMetadata": {"HTTPStatusCode": reply.status}}, "GetObject")  # type: ignore[typeddict-item]
        raise AssertionError("unreachable")


def _interrupted(error: Exception) -> Interrupted:
    return Interrupted(f"{type(error).__name__}: {error}"[:200])


def _element(body: str, name: str) -> str:
    element = re.search(f"<{name}>([^<]*)</{name}>", body)
    return element.group(1)[:300] if element else ""


def _clock_ahead(reply: HTTPResponse) -> float | None:
    try:
        return time.time() - parsedate_to_datetime(reply.getheader("Date", "")).timestamp()
    except (TypeError, ValueError):
        return None


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
