"""The WebSocket on a real connection, on a real loop: what a server around it makes hard to time; and its frames."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Iterator

import pytest

from container.http.body_budget import BodyBudget
from container.http.connections import Connections
from container.http.exchange import Exchange
from container.inference import websocket
from container.inference.sinks import documents
from container.inference.websocket import WebSocket
from container.service import Service
from tests.handler.loops import on_loop
from tests.handler.waiting import WITHIN, eventually

HANDSHAKE = (
    b"GET /invocations-bidirectional-stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
# Bytes that uvloop reads at once.
READ = 256_000


async def refuse(message: bytes) -> None:
    raise AssertionError("there is no message")


async def never(message: bytes) -> None:
    await asyncio.Event().wait()


class Opened:
    """A WebSocket whose handshake is over, its client, and the connections of its process."""

    def __init__(self, service: Service, answer: Callable[[bytes], Coroutine[object, object, None]], budget: int):
        self.loop, self.budget = service.loop, BodyBudget(budget, 30_000)
        webs: list[WebSocket] = []

        async def converse(exchange: Exchange) -> None:
            web = WebSocket(exchange.connection, service.loop, self.budget, answer)
            exchange.become(web, web.begin(exchange.head.environ))
            webs.append(web)

        self.connections = Connections(service.loop, converse, service.observer, service.bodies)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.client = socket.create_connection(listener.getsockname())
            server, _ = listener.accept()
        self.client.settimeout(WITHIN)
        service.loop.call(self.connections.take, server)
        self.client.sendall(HANDSHAKE)
        assert self.client.recv(12) == b"HTTP/1.1 101"
        eventually(lambda: webs)
        (self.web,) = webs

    def frames(self) -> bytes:
        """What the client receives after the handshake, until the server closes its side."""
        return b"".join(iter(lambda: self.client.recv(4096), b"")).partition(b"\r\n\r\n")[2]

    def gone(self) -> bool:
        return not self.web.open and len(self.connections) == 0


@pytest.fixture
def opened(service: Service) -> Iterator[Callable[..., Opened]]:
    made: list[Opened] = []

    def make(answer: Callable[[bytes], Coroutine[object, object, None]] = refuse, budget: int = 1_000_000) -> Opened:
        made.append(Opened(service, answer, budget))
        return made[-1]

    yield make
    for each in made:
        each.client.close()
        eventually(each.gone)


def test_a_client_that_a_write_finds_gone_is_let_go_of(opened: Callable[..., Opened]) -> None:
    """The close that follows must not touch its socket, which may be another's by then."""
    one = opened()
    one.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def reset_and_write() -> None:  # in one turn of the loop: it does not see the reset before the write does
        one.client.close()
        one.web.send("a")

    on_loop(one.loop, reset_and_write)
    eventually(one.gone)
    on_loop(one.loop, one.web.close)


def test_an_idle_connection_stays_open_until_it_is_told_to_close(
    opened: Callable[..., Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SageMaker makes a ModelStreamError of a close frame, so that an idle client would get one."""
    monkeypatch.setattr(websocket, "PING_SECONDS", 3600.0)
    one = opened()
    one.web.idle_since = 0.0
    for _ in range(20):  # of a minute each, and each answered
        on_loop(one.loop, one.web._ping)
        one.web._missed = 0
    assert one.web.open
    on_loop(one.loop, one.web.close_if_idle)
    frames = one.frames().lstrip(b"\x89\x00")
    assert frames[:1] == b"\x88"
    assert int.from_bytes(frames[2:4], "big") == 1001


def test_a_client_whose_pongs_are_not_read_is_not_closed_for_them(
    opened: Callable[..., Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long answer with a full queue behind it: nothing is read meanwhile."""
    monkeypatch.setattr(websocket, "PING_SECONDS", 3600.0)
    one = opened(never)
    one.client.sendall(text_frame(1000) * (websocket.MAX_QUEUED + 1))
    eventually(lambda: one.web._leaving is not None)
    for _ in range(20):  # of a minute each
        on_loop(one.loop, one.web._ping)
    assert one.web.open


def test_a_connection_whose_message_is_being_answered_stays_open(opened: Callable[..., Opened]) -> None:
    asked, gate = threading.Event(), asyncio.Event()

    async def answer(message: bytes) -> None:
        asked.set()
        await gate.wait()

    one = opened(answer)
    one.client.sendall(b"\x81\x81\x00\x00\x00\x00a")
    assert asked.wait(WITHIN)
    on_loop(one.loop, one.web.close_if_idle)
    assert one.web.open
    on_loop(one.loop, gate.set)
    eventually(lambda: on_loop(one.loop, one.web.close_if_idle) or not one.web.open)


def text_frame(size: int) -> bytes:
    """One masked text frame, as a client sends it."""
    return b"\x81\xfe" + size.to_bytes(2, "big") + bytes(4) + b"a" * size


def test_what_waits_behind_a_message_is_bounded_and_a_client_that_leaves_meanwhile_is_noticed(
    opened: Callable[..., Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "MAX_AHEAD", 2000)
    monkeypatch.setattr(websocket, "LEAVING_SECONDS", 0.01)
    one = opened(never)
    data, transport = text_frame(1000) * 10_000, one.web._connection.transport
    one.client.setblocking(False)
    sent = 0

    def send() -> bool:
        """Sends until nobody reads any more, and no more can be sent."""
        nonlocal sent
        try:
            sent += one.client.send(data[sent:])
        except BlockingIOError:
            return not transport.is_reading()
        return False

    eventually(send)
    assert 2000 <= one.budget.used <= 3000 + READ
    one.client.close()  # most of its bytes have not been read
    eventually(one.gone)
    assert one.budget.used == 0


def test_bytes_that_wait_count_as_those_of_bodies(opened: Callable[..., Opened]) -> None:
    one = opened(never, 1500)
    one.client.sendall(text_frame(1000) * 3)
    frames = one.frames()
    assert frames[:1] == b"\x88"
    assert int.from_bytes(frames[2:4], "big") == 1013


def test_an_unfinished_message_holds_its_bytes_for_some_time_only(
    opened: Callable[..., Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "ARRIVAL_SECONDS", 0.3)
    one = opened(never)
    start, rest = b"\x01" + text_frame(1000)[1:], b"\x80" + text_frame(1000)[1:]  # two fragments
    one.client.sendall(start + rest)
    time.sleep(0.6)
    assert one.web.open, "a message that is complete is in time"
    one.client.sendall(start)
    frames = one.frames()
    assert frames[:1] == b"\x88"
    assert int.from_bytes(frames[2:4], "big") == 1008
    eventually(one.gone)
    assert one.budget.used == 0


def test_a_message_of_which_nothing_is_read_has_its_time_afterwards(
    opened: Callable[..., Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "ARRIVAL_SECONDS", 0.3)
    gate = asyncio.Event()

    async def answer(message: bytes) -> None:
        await gate.wait()

    one = opened(answer)
    one.client.sendall(text_frame(1000) * (websocket.MAX_QUEUED + 1) + b"\x01" + text_frame(1000)[1:])
    eventually(lambda: one.web._leaving is not None and one.web._partial)
    time.sleep(0.6)
    assert one.web.open
    on_loop(one.loop, gate.set)
    assert int.from_bytes(one.frames()[2:4], "big") == 1008


@pytest.mark.parametrize(
    ("data", "frames"),
    [
        (b'{"a":1}', ['{"a":1}']),
        (b'{"a":1}\n{"b":2}\n', ['{"a":1}', '{"b":2}']),
        (b'data: {"a":1}\n\ndata: [DONE]\n\n', ['{"a":1}', "[DONE]"]),
        (b'event: response.created\ndata: {"a":1}\n\nevent: x\ndata: {"b":2}\n\n', ['{"a":1}', '{"b":2}']),
        (b"", []),
    ],
)
def test_each_document_is_a_frame(data: bytes, frames: list[str]) -> None:
    assert documents(data) == frames
