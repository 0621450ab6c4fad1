"""What the clients of one loop must not notice of each other."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from container.http.connections import Connections
from container.http.exchange import Exchange, send_pieces
from container.recovery.recovery import Recovery
from container.recovery.request_channel import RequestChannel, RequestNote
from container.requests.deadline import Deadline
from container.server.held_requests import HeldRequests
from container.service import Service
from handler.engine.core_queue import GROUP, RequestGroup
from tests.container.http_client import connections_of
from tests.handler.loops import on_loop
from tests.handler.waiting import WITHIN, eventually

MIB = 1 << 20


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def pair() -> tuple[socket.socket, socket.socket]:
    """The server's and the client's end of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    client.settimeout(WITHIN)
    return server, client


@contextmanager
def client_of(service: Service, connections: Connections) -> Iterator[socket.socket]:
    """A client whose connection the loop has."""
    server, client = pair()
    with client:
        on_loop(service.loop, lambda: connections.take(server))
        yield client


def test_a_request_has_nothing_of_the_context_of_the_one_whose_end_began_it(service: Service) -> None:
    groups: dict[str, RequestGroup | None] = {}

    async def answer(exchange: Exchange) -> None:
        groups[exchange.path] = GROUP.get()
        GROUP.set(RequestGroup())
        exchange.send(200, (), b"")

    connections = Connections(service.loop, answer, service.observer, service.bodies)
    with client_of(service, connections) as client:
        client.sendall(get("/first") + get("/second") + get("/third"))
        eventually(lambda: len(groups) == 3)
    assert groups == {"/first": None, "/second": None, "/third": None}


@pytest.mark.parametrize("size", [MIB, 16 * MIB])
def test_a_client_that_reads_gets_pieces_of_any_size(service: Service, size: int) -> None:
    async def answer(exchange: Exchange) -> None:
        exchange.begin(200, (), 3 * size)
        with ThreadPoolExecutor(1) as thread:
            await send_pieces(exchange, iter([b"~" * size] * 3), thread)

    connections = Connections(service.loop, answer, service.observer, service.bodies)
    with client_of(service, connections) as client:
        client.sendall(get("/large"))
        received = 0
        while received < 3 * size and (data := client.recv(MIB)):
            received += data.count(b"~")
    assert received == 3 * size


def test_a_handed_request_that_is_refused_before_it_is_answered_holds_no_place(service: Service) -> None:
    channel, (server, client) = RequestChannel(), pair()
    service.recovery = Recovery(channel)
    lines = "".join(f"X-{number}: a\r\n" for number in range(200))
    note = RequestNote("an-id", 0.0, Deadline(60.0, time.monotonic() + 60, stream=False))
    with client, server:
        channel.send(server.fileno(), f"POST /invocations HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode(), note)
        held = HeldRequests(service, connections_of(service))
        on_loop(service.loop, held.receive)
        assert service.admission.count == 1
        on_loop(service.loop, held.look)
        assert client.recv(12) == b"HTTP/1.1 431"
    assert service.admission.count == 0


def test_lines_of_a_client_that_has_left_are_not_begun(service: Service) -> None:
    lines = b'{"prompt": "<hold>"}\n' * 3
    head = "POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/jsonlines\r\n"
    connections = connections_of(service)
    with client_of(service, connections) as client:

        def send_and_leave() -> None:  # in one turn of the loop
            client.sendall(f"{head}Content-Length: {len(lines)}\r\n\r\n".encode() + lines)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()

        on_loop(service.loop, send_and_leave)
    eventually(lambda: len(connections) == 0)
    eventually(lambda: service.admission.count == 0)
