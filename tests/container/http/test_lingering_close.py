"""A client that is still sending can read its reply, whatever it was refused for, and holds nothing while it sends."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.container.raw_http import Connection, request
from tests.container.scripted_process import PING, Server, served
from tests.container.scripted_server import LINGER_BYTES, LINGER_SECONDS
from tests.handler.waiting import eventually

POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
# More than any buffer between the two takes, so that a reset is noticed.
SIZE = 24 << 20
LENGTH = b"Content-Length: %d\r\n" % SIZE
REFUSED: list[tuple[str, bytes, int]] = [
    ("two lengths", POST + LENGTH + LENGTH, 400),
    ("a length that is no number", POST + b"Content-Length: 1e3\r\n", 400),
    ("another transfer coding", POST + b"Transfer-Encoding: chunked, gzip\r\n", 400),
    ("no HTTP at all", b"POST /invocations SPDY/3\r\n" + LENGTH, 400),
    ("an expectation", POST + LENGTH + b"Expect: x\r\n", 417),
    ("too much", POST + LENGTH, 413),
    ("too much in chunks", POST + b"Transfer-Encoding: chunked\r\n", 413),
    ("too much, and it waits to be told to go on", POST + LENGTH + b"Expect: 100-continue\r\n", 413),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("lingering")) as server:
        yield server


def refusal(server: Server, head: bytes) -> tuple[int, dict[str, str | None]]:
    """Status and error for a client that sends all it has before it looks at what it got; then the end of it."""
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (SIZE, b"a" * SIZE) if b"chunked\r\n" in head else b"a" * SIZE
    with server.connect() as connection:
        connection.send(head + b"\r\n" + body)
        found = connection.head()
        if found.status == 100:
            found = connection.head()
        assert found.headers["connection"] == "close"
        error: dict[str, str | None] = json.loads(connection.content(found))["error"]
        assert connection.rest() == b""
    return found.status, error


@pytest.mark.parametrize(("head", "status"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_refusal_is_read(server: Server, head: bytes, status: int) -> None:
    found, error = refusal(server, head)
    assert found == status
    assert error["message"]


def test_a_small_body_that_nobody_wants_costs_no_connection(server: Server) -> None:
    with server.connect() as connection:
        for _ in range(2):
            head, _ = connection.exchange(request("/nowhere", {"prompt": "a" * 3000}))
            assert (head.status, head.headers["connection"]) == (404, "keep-alive")


def test_that_it_was_too_slow_is_read_by_one_that_goes_on_slowly(server: Server) -> None:
    with server.connect() as connection:
        connection.send(POST + LENGTH.replace(b"%d" % SIZE, b"3000") + b"\r\n")
        while not select.select([connection.socket], [], [], 0.02)[0]:
            connection.send(b"a")
        for _ in range(20):
            connection.send(b"a")
            time.sleep(0.01)  # its own pace: nothing is waited for
        assert connection.head().status == 408


def test_who_sends_for_ever_is_cut_off_and_holds_no_thread(server: Server) -> None:
    began = time.monotonic()
    senders = [server.connect() for _ in range(30)]  # of 12 threads
    for sender in senders:
        sender.send(POST + LENGTH + LENGTH + b"\r\n")
        assert sender.head().status == 400

    def sent(sender: Connection) -> bool:
        try:
            sender.send(b"a")
        except OSError:
            return False
        return True

    while senders := [sender for sender in senders if sent(sender)]:
        with server.connect() as connection:
            assert connection.exchange(PING)[0].status == 200
        assert time.monotonic() - began < 10 * LINGER_SECONDS
        time.sleep(0.05)  # their pace: each is well within what may be silent


def test_who_sends_without_measure_is_cut_off(server: Server) -> None:
    with server.connect() as connection, pytest.raises((BrokenPipeError, ConnectionResetError)):
        connection.send(POST + LENGTH + LENGTH + b"\r\n" + b"a" * (2 * LINGER_BYTES))


def test_who_neither_sends_nor_closes_is_let_go(server: Server) -> None:
    with server.connect() as connection:
        connection.send(POST + LENGTH + LENGTH + b"\r\n")
        assert connection.head().status == 400
        port = connection.socket.getsockname()[1]
        workers = psutil.Process(server.process.pid).children()
        assert port in ports(workers)
        eventually(lambda: port not in ports(workers))


def ports(processes: list[psutil.Process]) -> set[int]:
    """Of the clients whose connections these hold."""
    found = [connection for process in processes for connection in process.net_connections("tcp")]
    return {connection.raddr.port for connection in found if connection.raddr}
