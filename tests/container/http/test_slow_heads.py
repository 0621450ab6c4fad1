"""Clients that send their head slowly, or never completely, hold no thread: others are answered meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.container.raw_http import request
from tests.container.scripted_process import PING, THREADS, Server, served

COMPLETION = request("/v1/completions", {"prompt": "a"})
MANY = 2 * THREADS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("heads"), "--patient") as server:
        yield server


def answered(server: Server) -> None:
    for data in (PING, COMPLETION, request("/nothing")):
        with server.connect() as connection:
            assert connection.exchange(data)[0].status in (200, 404)


@pytest.mark.parametrize("begin", [b"G", b"P", COMPLETION[:20], b"GET /metrics HTTP/1.1\r\nHost: x\r\n"])
def test_new_connections_with_an_incomplete_head(server: Server, begin: bytes) -> None:
    with ExitStack() as held:
        for _ in range(MANY):
            held.enter_context(server.connect()).send(begin)
        answered(server)


@pytest.mark.parametrize("first", [PING, COMPLETION, request("/nothing")], ids=["ping", "completion", "nothing"])
def test_kept_connections_with_an_incomplete_head(server: Server, first: bytes) -> None:
    with ExitStack() as held:
        connections = [held.enter_context(server.connect()) for _ in range(MANY)]
        for connection in connections:
            connection.send(first + b"G")  # the byte comes with the request before it
            connection.content(connection.head())
        answered(server)
        for connection in connections:  # the rest comes later, and is answered
            assert connection.exchange(PING[1:])[0].status == 200


def test_a_head_that_does_not_end_is_too_long(server: Server) -> None:
    with ExitStack() as held:
        connections = [held.enter_context(server.connect()) for _ in range(MANY)]
        for connection in connections:
            connection.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 6000)
        answered(server)
        assert [connection.head().status for connection in connections] == [431] * MANY


def test_a_slow_head_is_answered_once_it_is_complete(server: Server) -> None:
    with server.connect() as connection:
        for position in range(0, len(COMPLETION) - 1, 20):
            connection.send(COMPLETION[position : position + 20])
            assert server.ready()
        connection.send(COMPLETION[position + 20 :])
        assert connection.head().status == 200
