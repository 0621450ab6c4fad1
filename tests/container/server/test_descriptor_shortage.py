"""A worker that runs out of file descriptors closes idle connections and goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.container.raw_http import request
from tests.container.scripted_process import PING, Server, served
from tests.handler.waiting import eventually

LIMIT = 256
CONNECTIONS = 300
LIMIT_MESSAGE = f"ulimit -n is {LIMIT}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with served(tmp_path, f"--nofile={LIMIT}") as server:
        yield server


def workers(server: Server) -> list[int]:
    return [child.pid for child in psutil.Process(server.process.pid).children()]


def test_clients_that_keep_their_connections(server: Server) -> None:
    before = workers(server)
    with ExitStack() as held:
        stream = held.enter_context(server.connect())
        stream.send(request("/v1/completions", {"prompt": "a|<gate:descriptors>|b", "stream": True}))
        assert stream.head().status == 200
        for _ in range(CONNECTIONS):  # far more than there are descriptors: each is answered
            assert held.enter_context(server.connect()).exchange(PING)[0].status == 200
        assert server.ready()
        server.open("descriptors")
        assert stream.chunks()[1]  # only idle connections were closed
    assert server.ready()
    assert workers(server) == before
    assert server.log.read_text().count(LIMIT_MESSAGE) == 1


def test_clients_that_connect_and_send_nothing(server: Server) -> None:
    before = workers(server)
    with ExitStack() as held:
        for _ in range(CONNECTIONS):
            held.enter_context(server.connect())
        assert server.ready()
        eventually(lambda: LIMIT_MESSAGE in server.log.read_text())
    assert server.ready()
    assert workers(server) == before
