"""Deadlines over a real connection: what a client reads, and that the connection is good for the next request."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.container.raw_http import request
from tests.container.scripted_engine import PLACES
from tests.container.scripted_process import MODES, Server, served
from tests.handler.waiting import eventually


@pytest.fixture(scope="module", params=MODES, ids=["loop", "threads"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("deadlines"), "--deadlines", *request.param) as server:
        yield server


def test_a_late_reply_is_504_and_the_connection_goes_on(server: Server) -> None:
    with server.connect() as connection:
        head, body = connection.exchange(request("/invocations", {"prompt": "a|<hold>"}))
        assert head.status == 504
        assert json.loads(body)["error"]["code"] == "deadline_exceeded"
        assert head.headers["connection"] == "keep-alive"
        assert connection.exchange(request("/invocations", {"prompt": "a"}))[0].status == 200
    assert server.seen()["in_engine"] == 0


def test_a_late_stream_says_so_and_has_no_end_mark(server: Server) -> None:
    with server.connect() as connection:
        connection.send(request("/invocations", {"prompt": "a|<hold>", "stream": True}))
        assert connection.head().status == 200
        body, whole = connection.chunks()
    assert b'"a"' in body
    assert b'"code":"deadline_exceeded"' in body
    assert b"[DONE]" not in body
    assert not whole
    assert server.seen()["in_engine"] == 0


def test_a_queue_of_late_requests_gives_all_places_back(server: Server) -> None:
    connections = [server.connect() for _ in range(PLACES)]
    for connection in connections:
        connection.send(request("/invocations", {"prompt": "<hold>"}))
    assert [connection.head().status for connection in connections] == [504] * PLACES
    eventually(lambda: server.seen()["in_flight"] == 0)
    for connection in connections:
        connection.close()


def test_a_request_may_bring_its_own_deadline(server: Server) -> None:
    with server.connect() as connection:
        headers = "X-Amzn-SageMaker-InvocationTimeoutSeconds: 3600\r\n"
        connection.send(request("/invocations", {"prompt": "<gate:longer>|a"}, headers=headers))
        with server.connect() as other:
            assert other.exchange(request("/invocations", {"prompt": "<hold>"}))[0].status == 504
        server.open("longer")
        assert connection.head().status == 200
