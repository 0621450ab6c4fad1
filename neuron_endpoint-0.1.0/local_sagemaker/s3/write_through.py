"""Writes each change of an S3 object to a file before it is answered. moto itself keeps objects in memory only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs, quote

from werkzeug.test import Client

from local_sagemaker.s3.stored_objects import KeptObjects

log = logging.getLogger(__name__)

WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
CHANGING = frozenset({"PUT", "POST", "DELETE"})
KEPT_HEADERS = ("content-type", "content-encoding", "content-disposition", "content-language", "cache-control")
METADATA = "x-amz-meta-"
SIGNED = "AWS4-HMAC-SHA256 Credential=local/20000101/{region}/s3/aws4_request, SignedHeaders=host, Signature=0"


class WriteThrough:
    """A WSGI application around moto's. It uses only S3's protocol, nothing of moto's internals.

    Buckets are in the path of a URL, as with every client of an IP address.
    """

    def __init__(self, app: WSGI, kept: KeptObjects, host: str) -> None:
        """Wraps an application.

        :param host: ``127.0.0.1:PORT``, for its own requests.
        """
        self._app = app
        self._kept = kept
        self._client = Client(app)
        self._base = f"http://{host}"

    def load(self) -> None:
        """Restores the stored objects into moto."""
        for bucket, request in self._kept.buckets():
            self._ask("PUT", bucket, None, region=request["region"], data=request["body"].encode())
            for kept in self._kept.objects(bucket):
                self._ask("PUT", bucket, kept.key, headers=kept.headers, data=kept.body.read())

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        region = region_of_s3(environ)
        if environ["REQUEST_METHOD"] not in CHANGING or region is None:
            return self._app(environ, start_response)
        path = environ.get("PATH_INFO", "/").encode("latin-1").decode("utf-8", "replace")
        bucket, _, key = path.removeprefix("/").partition("/")
        request_body = b"" if key else take_body(environ)
        begun: list[Any] = []

        def begin(*arguments: Any) -> None:
            begun.append(arguments)

        parts = self._app(environ, begin)
        try:
            reply = b"".join(parts)
        finally:
            if hasattr(parts, "close"):
                parts.close()
        if bucket and begun[0][0].startswith("2"):
            self._keep(environ, bucket, key, {"region": region, "body": request_body.decode("utf-8", "replace")})
        start_response(*begun[0])
        return [reply]

    def _keep(self, environ: dict[str, Any], bucket: str, key: str, made: dict[str, str]) -> None:
        method, query = environ["REQUEST_METHOD"], parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        if key:
            if not (method == "PUT" and "uploadId" in query):  # A part of an upload is not an object yet.
                self._follow(bucket, key)
        elif method == "PUT":
            if not query.keys() - {"x-id"}:
                self._kept.keep_bucket(bucket, made)
        elif method == "DELETE":
            if not query.keys() - {"x-id"}:
                self._kept.drop_bucket(bucket)
        elif "delete" in query:
            for each in self._kept.keys(bucket):
                self._follow(bucket, each)
        else:
            log.warning("what a form posts to the bucket %s is not kept", bucket)

    def _follow(self, bucket: str, key: str) -> None:
        """Updates the file of an object to its current content."""
        with self._kept.turn(bucket, key):
            found = self._ask("GET", bucket, key)
            if found.status_code == 200:
                headers = {name: value for name, value in found.headers if is_kept(name.lower())}
                self._kept.keep(bucket, key, headers, found.data)
            elif found.status_code == 404:
                self._kept.drop(bucket, key)
            else:
                log.error("s3://%s/%s can't be kept: reading it was answered %s", bucket, key, found.status_code)

    def _ask(self, method: str, bucket: str, key: str | None, region: str = "us-east-1", **more: Any) -> Any:
        headers = {**more.pop("headers", {}), "Authorization": SIGNED.format(region=region)}
        path = f"/{quote(bucket)}" + ("" if key is None else f"/{quote(key, safe='/~')}")
        return self._client.open(path, method=method, base_url=self._base, headers=headers, **more)


def is_kept(header: str) -> bool:
    return header in KEPT_HEADERS or header.startswith(METADATA)


def region_of_s3(environ: dict[str, Any]) -> str | None:
    """Returns the region of a request to S3. None if it is signed for another of moto's services."""
    scope = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition(",")[0].split("/")
    if len(scope) < 5:
        return "us-east-1"  # A presigned or unsigned request.
    return scope[-3] if scope[-2] == "s3" else None


def take_body(environ: dict[str, Any]) -> bytes:
    """Returns the body and leaves it readable for the application."""
    if environ.get("HTTP_TRANSFER_ENCODING"):
        return b""
    body: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = BytesIO(body)
    return body
