"""The WebSocket over a real socket pair, on a real loop: what a server around it makes hard to time."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from loops import on_loop
from waiting import WITHIN, eventually

from container.requests.body_budget import BodyBudget, BodyBytes
from container.streaming import websocket
from container.streaming.websocket import WebSocket
from handler.engine.event_loop import LoopThread

HANDSHAKE = {
    "RAW_URI": "/invocations-bidirectional-stream",
    "HTTP_HOST": "x",
    "HTTP_UPGRADE": "websocket",
    "HTTP_CONNECTION": "Upgrade",
    "HTTP_SEC_WEBSOCKET_KEY": "MDEyMzQ1Njc4OWFiY2RlZg==",
    "HTTP_SEC_WEBSOCKET_VERSION": "13",
}


def refuse(message: bytes) -> None:
    raise AssertionError("there is no message")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A server's and a client's end of one TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    yield server, client
    server.close()
    client.close()


def test_a_client_that_a_write_finds_gone_is_let_go_of_at_once_and_whole(
    loop: LoopThread, pair: tuple[socket.socket, socket.socket]
) -> None:
    """The thread closes the socket as soon as it is released; the close that follows on the loop must not touch it."""
    server, client = pair
    released = threading.Event()
    web = WebSocket(server, loop.loop, 1000, refuse, released.set, BodyBytes(BodyBudget(10_000)))

    def do(function: Callable[..., Any], *arguments: Any) -> Any:
        return on_loop(loop, lambda: function(*arguments))

    do(web.open, HANDSHAKE)
    assert client.recv(12) == b"HTTP/1.1 101"
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def reset_and_write() -> None:  # in one turn of the loop: it does not see the reset before the write does
        client.close()
        web.send("a")

    do(reset_and_write)
    assert released.is_set()
    assert web.ended
    server.close()
    do(web.close)


def test_an_idle_connection_stays_open_until_it_is_told_to_close(
    loop: LoopThread, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SageMaker makes a ModelStreamError of a close frame, so that an idle client would get one."""
    monkeypatch.setattr(websocket, "PING_SECONDS", 3600.0)
    server, client = pair
    client.settimeout(WITHIN)
    released = threading.Event()
    web = WebSocket(server, loop.loop, 1000, refuse, released.set, BodyBytes(BodyBudget(10_000)))
    on_loop(loop, lambda: web.open(HANDSHAKE))
    web.idle_since = 0.0
    for _ in range(20):  # of a minute each, and each answered
        on_loop(loop, web._ping)
        web._missed = 0
    assert not web.ended
    web.close_if_idle()
    assert released.wait(WITHIN)
    server.close()
    received = b"".join(iter(lambda: client.recv(4096), b""))
    frames = received.partition(b"\r\n\r\n")[2].lstrip(b"\x89\x00")
    assert frames[:1] == b"\x88"
    assert int.from_bytes(frames[2:4], "big") == 1001


def test_a_connection_whose_message_is_being_answered_stays_open(
    loop: LoopThread, pair: tuple[socket.socket, socket.socket]
) -> None:
    server, client = pair
    asked = threading.Event()
    web = WebSocket(server, loop.loop, 1000, lambda message: asked.set(), lambda: None, BodyBytes(BodyBudget(10_000)))
    on_loop(loop, lambda: web.open(HANDSHAKE))
    client.sendall(b"\x81\x81\x00\x00\x00\x00a")
    assert asked.wait(WITHIN)
    web.close_if_idle()
    on_loop(loop, lambda: None)
    assert not web.ended
    on_loop(loop, web.answered)
    web.close_if_idle()
    on_loop(loop, lambda: None)
    assert web.ended


def text_frame(size: int) -> bytes:
    """One masked text frame, as a client sends it."""
    return b"\x81\xfe" + size.to_bytes(2, "big") + bytes(4) + b"a" * size


def test_what_waits_behind_a_message_is_bounded_and_a_client_that_leaves_meanwhile_is_noticed(
    loop: LoopThread, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "MAX_AHEAD", 2000)
    monkeypatch.setattr(websocket, "LEAVING_SECONDS", 0.01)
    server, client = pair
    budget, released = BodyBudget(1_000_000), threading.Event()
    web = WebSocket(server, loop.loop, 30_000, lambda message: None, released.set, BodyBytes(budget))
    on_loop(loop, lambda: web.open(HANDSHAKE))
    client.sendall(text_frame(1000) * 20)
    eventually(lambda: not web._reading)
    assert 2000 <= budget.used <= 3000 + websocket.READ
    client.close()  # most of its bytes have not been read
    assert released.wait(WITHIN)
    assert budget.used == 0


def test_bytes_that_wait_count_as_those_of_bodies(loop: LoopThread, pair: tuple[socket.socket, socket.socket]) -> None:
    server, client = pair
    client.settimeout(WITHIN)
    released = threading.Event()
    web = WebSocket(server, loop.loop, 30_000, lambda message: None, released.set, BodyBytes(BodyBudget(1500)))
    on_loop(loop, lambda: web.open(HANDSHAKE))
    client.sendall(text_frame(1000) * 3)
    assert released.wait(WITHIN)
    server.close()
    frames = b"".join(iter(lambda: client.recv(4096), b"")).partition(b"\r\n\r\n")[2]
    assert frames[:1] == b"\x88"
    assert int.from_bytes(frames[2:4], "big") == 1013
