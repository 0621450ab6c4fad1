"""/ping is answered whatever holds the serving process, and every other request reaches it as it was sent."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from benchmarks.lib.process_usage import http_processes
from container.health_check import healthy
from container.server.acceptor import MAX_AT_ONCE, Acceptor, ping_keeps_alive
from container.server.acceptor_process import NAME, NICE, AcceptorProcess
from container.server.connection_channel import ConnectionChannel
from container.server.gunicorn_server import GunicornServer
from container.server.ping_state import MAX_BODY, PingState
from handler.config.endpoint_config import EndpointConfig
from tests.container.raw_http import Connection, request
from tests.container.scripted_process import PING, Server, served
from tests.handler.waiting import eventually

CAP_SYS_NICE = 1 << 23  # linux/capability.h
LIMIT = 256
COMPLETION = request("/v1/completions", {"prompt": "a"})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("acceptor"), f"--nofile={LIMIT}") as server:
        yield server


def processes(server: Server) -> tuple[psutil.Process, psutil.Process]:
    """The acceptor and the worker."""
    children = psutil.Process(server.process.pid).children()
    (acceptor,) = [child for child in children if child.name() == NAME]
    (worker,) = [child for child in children if child != acceptor]
    return acceptor, worker


@contextmanager
def worker_stopped(server: Server) -> Iterator[None]:
    """As when native code holds its interpreter."""
    _, worker = processes(server)
    worker.suspend()
    eventually(lambda: worker.status() == psutil.STATUS_STOPPED)
    try:
        yield
    finally:
        worker.resume()


def test_it_is_answered_while_the_serving_process_stands_still(server: Server) -> None:
    with server.connect() as before, server.connect() as waiting:
        before.exchange(PING)
        with worker_stopped(server):
            waiting.send(COMPLETION)
            assert before.exchange(PING)[0].status == 200
            with server.connect() as after:
                assert after.exchange(PING)[0].status == 200
        assert waiting.head().status == 200


def test_idle_clients_and_waiting_requests_leave_it_room(server: Server) -> None:
    with ExitStack() as held:
        health_check = held.enter_context(server.connect())
        health_check.exchange(PING)
        with worker_stopped(server):
            for number in range(2 * LIMIT):
                held.enter_context(server.connect()).send(COMPLETION if number % 2 else b"G")
                if number % 50 == 0:
                    assert health_check.exchange(PING)[0].status == 200
            with server.connect() as another:
                assert another.exchange(PING)[0].status == 200
    assert server.ready()
    with server.connect() as connection:
        assert connection.exchange(COMPLETION)[0].status == 200


def test_a_request_behind_a_ping_reaches_the_serving_process_as_it_was_sent(server: Server) -> None:
    with server.connect() as connection:
        connection.send(PING + PING + COMPLETION + PING)
        statuses = []
        for _ in range(4):
            head = connection.head()
            connection.content(head)
            statuses.append(head.status)
        assert statuses == [200] * 4


def test_a_client_that_asks_for_it_is_closed_on_after_a_ping(server: Server) -> None:
    for data in (request("/ping", headers="Connection: close\r\n"), request("/ping", version="1.0")):
        with server.connect() as connection:
            head, _ = connection.exchange(data)
            assert (head.status, head.headers["connection"]) == (200, "close")
            assert connection.rest() == b""


@pytest.mark.parametrize("name", ["ENDPOINT_PORT", "SAGEMAKER_BIND_TO_PORT"])
def test_the_images_health_check_asks_it(server: Server, name: str) -> None:
    assert healthy({"SAGEMAKER_BIND_TO_PORT": "", name: str(server.port)})


@pytest.mark.parametrize("document", ['{"port": PORT}', "endpoint.yaml"])
def test_the_images_health_check_reads_the_port_of_the_document(server: Server, document: str, tmp_path: Path) -> None:
    (tmp_path / "endpoint.yaml").write_text(f"max_num_seqs: 2\nport: {server.port}\n")
    named = document.replace("PORT", str(server.port)) if document.startswith("{") else str(tmp_path / document)
    assert healthy({"SAGEMAKER_BIND_TO_PORT": " ", "ENDPOINT_CONFIG": named})
    assert healthy({"ENDPOINT_CONFIG": f"{tmp_path}/gone.yaml"}), "S3 that does not answer is no fault of the endpoint"


def test_both_processes_say_the_same(server: Server) -> None:
    with server.connect() as connection:
        first = connection.exchange(PING)
        connection.exchange(request("/nothing"))
        second = connection.exchange(PING)
    for head, _ in (first, second):
        head.headers.pop("date")
    assert first == second


def test_it_comes_before_the_serving_process_where_that_is_permitted(server: Server) -> None:
    acceptor, worker = processes(server)
    effective = int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16)
    assert acceptor.nice() == worker.nice() + (NICE if effective & CAP_SYS_NICE else 0)


def test_the_serving_process_is_the_one_that_is_measured(server: Server) -> None:
    """Found by a soak whose serving process had 16 MB: it was the acceptor."""
    acceptor, worker = processes(server)
    assert [process.pid for process in http_processes(server.process.pid, server.port)] == [worker.pid, acceptor.pid]


def test_an_acceptor_that_ends_is_replaced(tmp_path: Path) -> None:
    server = Server(tmp_path / "errors.log")
    acceptor, worker = processes(server)
    os.kill(acceptor.pid, signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(worker.pid))

    def serves() -> bool:
        try:
            with server.connect() as connection:
                return connection.exchange(COMPLETION)[0].status == 200
        except (OSError, ValueError):
            return False

    eventually(serves)
    server.stop()


def test_before_there_is_a_serving_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = AcceptorProcess(listener, 6.0)
        acceptor.start()
        try:
            with Connection(listener.getsockname()[1]) as connection:
                head, body = connection.exchange(PING)
                assert (head.status, json.loads(body)["status"]) == (503, "starting")
                acceptor.state.write(200, b"")
                assert connection.exchange(PING)[0].status == 200
        finally:
            acceptor.stop()


def test_its_listener_never_blocks_although_gunicorn_has_it_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = AcceptorProcess(listener, 6.0)
        GunicornServer(EndpointConfig(model="none"), lambda: None, acceptor)  # type: ignore[arg-type, return-value]
        assert not os.get_blocking(listener.fileno())


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        ("GET /ping HTTP/1.1\r\nHost: x", True),
        ("GET /ping HTTP/1.1\r\nhost:x\r\nConnection: Keep-Alive\r\nUser-Agent: a b", True),
        ("GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close", False),
        ("GET /ping HTTP/1.0", False),
        ("GET /ping HTTP/1.1", None),
        ("GET /ping HTTP/1.1\r\nHost: x\r\nHost: x", None),
        ("GET /ping HTTP/1.1\r\nHost: x\r\n folded", None),
        ("GET /ping HTTP/1.1\r\nHost: x\r\nContent-Length: 1", None),
        ("GET /ping HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked", None),
        ("GET /ping HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c", None),
        ("GET /ping HTTP/2.0\r\nHost: x", None),
        ("GET /ping?a HTTP/1.1\r\nHost: x", None),
        ("HEAD /ping HTTP/1.1\r\nHost: x", None),
        ("GET /metrics HTTP/1.1\r\nHost: x", None),
    ],
)
def test_what_a_plain_ping_is(head: str, keeps: bool | None) -> None:
    assert ping_keeps_alive(f"{head}\r\n\r\n".encode()) is keeps


def test_a_serving_process_that_was_healthy_and_is_silent_is_500() -> None:
    state = PingState(0.0)
    assert state.read()[0] == 503
    state.write(200, b"")
    status, body = state.read()
    assert status == 500
    assert json.loads(body)["status"] == "stalled"
    state.write(503, b"draining")
    assert state.read() == (503, b"draining")
    state.write(500, b"a" * (MAX_BODY + 1))
    assert state.read() == (500, b"{}")


def test_a_client_that_asks_without_end_leaves_the_acceptor_after_some_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        state = PingState(60.0)
        state.write(200, b"{}")
        acceptor = Acceptor(listener, ConnectionChannel(), state)
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(PING * 1000)
            for _ in range(3):
                acceptor.turn(0.1)
            client.setblocking(False)
            assert client.recv(1 << 20).count(b"HTTP/1.1 200") == MAX_AT_ONCE


def test_many_requests_at_once_are_all_answered(server: Server) -> None:
    with server.connect() as connection:
        connection.send(PING * 50)
        for _ in range(50):
            head = connection.head()
            connection.content(head)
            assert head.status == 200
