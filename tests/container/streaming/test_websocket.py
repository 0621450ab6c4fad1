"""The WebSocket over a real socket pair, on a real loop: what a server around it makes hard to time."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from loops import on_loop

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
    web = WebSocket(server, loop.loop, 1000)

    def do(function: Callable[..., Any], *arguments: Any) -> Any:
        return on_loop(loop, lambda: function(*arguments))

    do(web.open, HANDSHAKE)
    assert client.recv(12) == b"HTTP/1.1 101"
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def reset_and_write() -> None:  # in one turn of the loop: it does not see the reset before the write does
        client.close()
        web.send("a")

    do(reset_and_write)
    assert web.released.is_set()
    assert web.messages.get_nowait() is None
    server.close()
    do(web.close)
