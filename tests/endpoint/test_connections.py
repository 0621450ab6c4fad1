"""Clients that would make the endpoint deaf: on four places and 256 file descriptors, others are answered meanwhile."""

from __future__ import annotations

import base64
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil
import pytest

import sample_model
from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine

PLACES, LIMIT = 4, 256
PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
HANDSHAKE = (
    b"GET /invocations-bidirectional-stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: " + base64.b64encode(b"0123456789abcdef") + b"\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
POST = b"POST /invocations HTTP/1.1\r\nContent-Type: application/json\r\n"
BODY = b'{"prompt": "a", "max_tokens": 2}'
SECONDS = 20.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    settings = {"ENDPOINT_MODEL": str(sample_model.path()), "ENDPOINT_MAX_CONCURRENT": str(PLACES)}
    served = ServeProcess(tmp_path_factory.mktemp("connections"), settings)
    resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    try:
        served.wait_port()
        with stopped(served):  # as when an import holds the interpreter
            assert status(served, PING) == 503
        served.wait_ready()
        yield served
    finally:
        ended = served.terminate()
    assert ended == 0, served.log
    assert "Traceback" not in served.log


def worker(served: ServeProcess) -> psutil.Process:
    found: list[psutil.Process] = []

    def one() -> bool:
        children = psutil.Process(served.process.pid).children()
        found[:] = [child for child in children if child.name() != "acceptor"]
        return len(found) == 1 and len(children) == 2  # the acceptor gets its name after it has begun

    served.until(one, 20)
    return found[0]


@contextmanager
def stopped(served: ServeProcess) -> Iterator[None]:
    process = worker(served)
    process.suspend()
    served.until(lambda: process.status() == psutil.STATUS_STOPPED, 5)
    try:
        yield
    finally:
        process.resume()


def connect(served: ServeProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), SECONDS)


def status(served: ServeProcess, data: bytes) -> int:
    with connect(served) as connection:
        connection.sendall(data)
        return int(connection.recv(4096).split()[1])


def answers(served: ServeProcess) -> None:
    assert status(served, PING) == 200
    assert status(served, POST + b"Host: x\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY) == 200
    assert status(served, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n") == 200


def test_connections_with_one_byte_each(served: ServeProcess) -> None:
    with ExitStack() as held:
        for _ in range(45):
            held.enter_context(connect(served)).sendall(b"G")
        answers(served)


def test_kept_connections_with_one_byte_of_a_further_request(served: ServeProcess) -> None:
    with ExitStack() as held:
        for _ in range(45):
            connection = held.enter_context(connect(served))
            connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\nG")
            assert b" 404 " in connection.recv(4096)
        answers(served)


def test_idle_websockets(served: ServeProcess) -> None:
    with ExitStack() as held:
        for _ in range(45):
            connection = held.enter_context(connect(served))
            connection.sendall(HANDSHAKE)
            assert b" 101 " in connection.recv(4096)
        answers(served)


def test_more_idle_connections_than_there_are_descriptors(served: ServeProcess) -> None:
    before = worker(served).pid
    with ExitStack() as held:
        for _ in range(LIMIT + 44):
            held.enter_context(connect(served))
        answers(served)
    answers(served)
    assert worker(served).pid == before
    assert f"ulimit -n is {LIMIT}" in served.log


def test_a_serving_process_that_stands_still(served: ServeProcess) -> None:
    with stopped(served):
        assert status(served, PING) == 200
    answers(served)


@pytest.mark.parametrize(
    "data",
    [
        POST + b"Host: x\r\nContent-Length: " + b"0" * 4400 + b"2\r\n\r\n{}",
        POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
        b"GET /ping HTTP/1.1\r\n\r\n",
    ],
    ids=["zeros", "no host", "no host at ping"],
)
def test_a_head_that_is_not_valid_gets_a_400(served: ServeProcess, data: bytes) -> None:
    assert status(served, data) == 400
    answers(served)
