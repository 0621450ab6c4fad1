"""Requests and replies as a client sees them, in whatever way they are sent."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.container.raw_http import Connection, request
from tests.container.scripted_engine import MAX_BODY
from tests.container.scripted_process import PING, Server, served
from tests.handler.waiting import WITHIN, eventually

HEADERS = "X-Amzn-SageMaker-Custom-Attributes: trace_id=t-1\r\nX-Amzn-SageMaker-Inference-Id: i-1\r\n"
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a|b"}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a|b"}], "stream": True}),
    ("/v1/completions", {"prompt": "a|b|<length>"}),
    ("/v1/completions", {"prompt": "a|b", "stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/completions", {"prompt": [97, 98]}),
    ("/invocations", {"messages": [{"role": "user", "content": "a"}], "stream": True}),
    ("/invocations", {"prompt": "a|b"}),
    ("/invocations", {"inputs": "a|b", "parameters": {"max_new_tokens": 4}}),
    ("/invocations", {"inputs": "a|b", "stream": True}),
    ("/invocations", {"inputs": ["a", "b"]}),
    ("/invocations", {"prompt": "<fail>"}),
    ("/invocations", {"prompt": "<fail>", "stream": True}),
    ("/invocations", {"prompt": "a|<fail>"}),
    ("/invocations", {"prompt": "<refuse>"}),
    ("/invocations", {"prompt": "<refuse>", "stream": True}),
    ("/invocations", {"prompt": "a", "no_such_field": 1}),
    ("/invocations", {"prompt": "a", "messages": []}),
    ("/invocations", {"prompt": ""}),
    ("/invocations", {"prompt": "a", "model": "unknown"}),
    ("/v1/completions", {"prompt": "a", "model": "unknown"}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 10_000}),
    ("/v1/completions", {"prompt": "a", "temperature": -1}),
    ("/invocations", {}),
    ("/invocations", {"prompt": "a" * (MAX_BODY - 20)}),  # refused by the context
]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("requests")) as server:
        yield server


def chunked(path: str, body: dict[str, Any], headers: str = "") -> bytes:
    """The same request with a body of unknown length."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    return f"{head}{headers}\r\n".encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)


def reply(connection: Connection, sent: bytes) -> tuple[int, dict[str, str], bytes, bool]:
    """Status, headers, body and whether it is whole, without what is never the same twice."""
    connection.send(sent)
    head = connection.head()
    headers = {name: value for name, value in head.headers.items() if name != "date"}
    if "transfer-encoding" in headers:
        body, whole = connection.chunks()
    else:
        body, whole = connection.content(head), True
    body = re.sub(rb'"(id|created)":("[^"]*"|\d+)', rb'"\1":0', body)
    return head.status, headers, re.sub(rb"(chatcmpl|cmpl)-[0-9a-f]+", rb"\1", body), whole


@pytest.mark.parametrize(("path", "body"), BODIES, ids=lambda value: json.dumps(value)[:80])
def test_a_body_of_unknown_length_gives_the_same_reply(server: Server, path: str, body: dict[str, Any]) -> None:
    with server.connect() as connection:
        known = reply(connection, request(path, body, headers=HEADERS))
    with server.connect() as connection:
        unknown = reply(connection, chunked(path, body, HEADERS))
    assert known == unknown
    assert known[1]["x-amzn-sagemaker-custom-attributes"] == "trace_id=t-1"


def test_a_bug_is_an_error_without_details_and_the_connection_goes_on(tmp_path: Path) -> None:
    server = Server(tmp_path / "errors.log")
    with server.connect() as connection:
        assert connection.exchange(request("/invocations", {"prompt": 1}))[0].status == 400
        assert "Traceback" not in server.log.read_text(), "a client's error is no bug"
        head, body = connection.exchange(request("/invocations", {"prompt": "<bug>"}))
        assert head.status == 500
        assert b"scripted" not in body
        assert connection.exchange(request("/invocations", {"prompt": "a"}))[0].status == 200
    server.stop()
    log = server.log.read_text()
    assert log.count("Traceback") == 1
    assert "RuntimeError: a scripted bug" in log


def test_each_request_is_in_the_metrics_and_in_the_log(server: Server) -> None:
    def answered() -> float:
        with server.connect() as connection:
            text = connection.exchange(request("/metrics"))[1].decode()
        found = re.findall(r'endpoint_requests_total\{route="/v1/completions",status="200"\} (\S+)', text)
        return float(found[0]) if found else 0.0

    before = answered()
    with server.connect() as connection:
        connection.exchange(request("/v1/completions", {"prompt": "a"}))
        connection.exchange(request("/v1/completions", {"prompt": "a", "stream": True}))
    eventually(lambda: answered() == before + 2)


def test_a_drain_lets_streams_end_and_rejects_with_an_error(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = Server(tmp_path_factory.mktemp("drain") / "errors.log")
    with server.connect() as running, server.connect() as idle:
        idle.exchange(request("/invocations", {"prompt": "a"}))
        running.send(request("/invocations", {"prompt": "a|<gate:end>|b", "stream": True}))
        assert running.head().status == 200
        server.process.send_signal(signal.SIGTERM)

        def draining() -> bool:
            with server.connect() as connection:
                return connection.exchange(PING)[0].status == 503

        eventually(draining)
        head, body = idle.exchange(request("/invocations", {"prompt": "a"}))
        assert head.status == 503
        assert json.loads(body)["error"]["code"] == "draining"
        server.open("end")
        assert running.chunks()[1]
    server.process.communicate(timeout=WITHIN)
    assert server.process.returncode == 0
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_ends_its_side_gets_its_reply(server: Server, stream: bool) -> None:
    gate = f"half-{stream}"
    with server.connect() as connection:
        connection.send(request("/v1/completions", {"prompt": f"<gate:{gate}>|b", "stream": stream}))
        eventually(lambda: server.seen()["in_engine"] == 1)
        connection.socket.shutdown(socket.SHUT_WR)
        while (head := connection.head()).status == 100:
            server.open(gate)
        body = connection.chunks()[0] if stream else connection.content(head)
    assert head.status == 200
    assert b'"text":"b"' in body
    assert server.seen()["cancelled"] == 0
