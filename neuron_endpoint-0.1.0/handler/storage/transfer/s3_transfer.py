"""Reads objects in S3 over plain HTTP connections, directly into the caller's buffers.

`http.client` is as fast as a bare socket here (measured). urllib3 is not: its `readinto` copies.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse
from ssl import SSLCertVerificationError
from typing import NoReturn

from handler.storage.s3_errors import translated
from handler.storage.s3_requests import S3Requests
from handler.storage.storage_errors import NotFound, StoreUnavailable
from handler.storage.transfer.file_parts import TransferFile
from handler.storage.transfer.transfer import Interrupted, Locate

# Temporary errors ("Error responses" in S3's API reference). RequestTimeTooSkewed is one if the server's clock is
# wrong.
TEMPORARY_STATUS = {408, 429, 500, 502, 503, 504}
TEMPORARY_CODES = {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "RequestTimeTooSkewed"}
MOST_ERROR_BYTES = 16 * 1024
CONNECT_TIMEOUT = 5.0


class S3Source:
    """A `TransferSource` over S3.

    :param locate: returns where the object of a digest is. All are in the bucket of `requests`.
    """

    def __init__(self, requests: S3Requests, locate: Locate) -> None:
        self.requests = requests
        self.locate = locate

    def reader(self) -> S3Reader:
        return S3Reader(self)

    def uri(self, file: TransferFile) -> str:
        return self.locate(file.digest).uri


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
        path, headers = self._source.requests.signed(
            location.key, None if whole else f"bytes={offset}-{offset + length - 1}"
        )
        if location.etag:
            headers["If-Match"] = location.etag
        try:
            reply = self._reply = self._send(path, headers, timeout)
            if reply.status not in {200, 206}:
                self._refuse(reply, location.uri)
        except SSLCertVerificationError as error:
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
            connection = self._source.requests.connect(min(CONNECT_TIMEOUT, timeout))
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
    found = re.search(f"<{name}>([^<]*)</{name}>", body)
    return found.group(1)[:300] if found else ""


def _clock_ahead(reply: HTTPResponse) -> float | None:
    try:
        return time.time() - parsedate_to_datetime(reply.getheader("Date", "")).timestamp()
    except (TypeError, ValueError):
        return None
