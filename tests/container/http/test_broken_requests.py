"""What is no HTTP request is answered as every error is: our error object, nothing of what was sent, no 5xx."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from tests.container.raw_http import Connection, request
from tests.container.scripted_process import Server, served

POST = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
BROKEN: list[tuple[str, bytes, int]] = [
    ("no HTTP at all", b"secret\r\n\r\n", 400),
    ("TLS", b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03secret", 400),
    ("lines that end without CR", b"GET /ping HTTP/1.1\nsecret: x\n\n", 400),
    ("another version", b"GET /ping HTTP/9.9\r\nHost: x\r\n\r\n", 400),
    ("a length that is no number", POST + b"Content-Length: secret\r\n\r\n", 400),
    ("a length of 4,400 zeros and a 2", POST + b"Content-Length: " + b"0" * 4400 + b"2\r\n\r\n{}", 400),
    ("no host", b"GET /ping HTTP/1.1\r\n\r\n", 400),
    ("two lengths", POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
    ("a length and chunks", POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("another transfer coding", POST + b"Transfer-Encoding: secret\r\n\r\n", 400),
    ("a header without a colon", b"GET /ping HTTP/1.1\r\nsecret\r\n\r\n", 400),
    ("two hosts", b"GET /ping HTTP/1.1\r\nHost: x\r\nHost: secret\r\n\r\n", 400),
    ("an expectation", POST + b"Expect: secret\r\nContent-Length: 2\r\n\r\n{}", 417),
    ("a long first line", b"GET /" + b"s" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
    ("a long header", b"GET /ping HTTP/1.1\r\nsecret: " + b"s" * 9000 + b"\r\n\r\n", 431),
    ("a chunk's size that is no number", CHUNKED + b"secret\r\n{}\r\n0\r\n\r\n", 400),
    ("a chunk that is longer than it says", CHUNKED + b"1\r\n{}secret\r\n0\r\n\r\n", 400),
    ("chunks that end in the middle", CHUNKED + b"ff\r\n{", 400),
    ("a body that is shorter than it says", POST + b"Content-Length: 9\r\n\r\n{}", 400),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("refusal")) as server:
        yield server


@pytest.mark.parametrize(("sent", "status"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_it_is_our_error(server: Server, sent: bytes, status: int) -> None:
    with Connection(server.port) as connection:
        connection.send(sent)
        connection.socket.shutdown(socket.SHUT_WR)
        head = connection.head()
        body = connection.content(head)
    assert (head.status, head.headers["content-type"]) == (status, "application/json")
    error = json.loads(body)["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert b"secret" not in body
    with Connection(server.port) as connection:
        assert connection.exchange(request("/ping"))[0].status == 200
