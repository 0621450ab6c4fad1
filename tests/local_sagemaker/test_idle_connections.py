"""A stream's connection to its container serves the next one, and never a container that has ended."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from local_sagemaker.gateway import idle_connections as idle
from local_sagemaker.gateway.container_connection import ConnectionBroken, ContainerConnection, InvocationDeadline
from local_sagemaker.gateway.gateway_settings import ContainerAddress
from local_sagemaker.gateway.idle_connections import IdleConnections

WHOLE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\na\r\n0\r\n\r\n"
BROKEN = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"


class Container:
    """Answers each request with `reply`, and counts its connections."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = ContainerAddress("127.0.0.1", self.listener.getsockname()[1])
        self.reply = WHOLE
        self.accepted: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.accepted.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while connection.recv(4096):
                connection.sendall(self.reply)
                if self.reply is not WHOLE:
                    connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def end(self) -> None:
        self.listener.close()
        for connection in self.accepted:
            connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def container() -> Iterator[Container]:
    container = Container()
    yield container
    container.listener.close()


def ask(container: Container, kept: IdleConnections) -> bytes:
    with ContainerConnection(container.address, 5, InvocationDeadline.after(5), None, kept) as connection:
        connection.post("/invocations", [], b"{}")
        return b"".join(connection.parts())


def test_streams_one_after_the_other_share_a_connection(container: Container) -> None:
    kept = IdleConnections()
    assert [ask(container, kept) for _ in range(3)] == [b"a"] * 3
    assert len(container.accepted) == 1


def test_streams_at_once_have_one_each(container: Container) -> None:
    kept = IdleConnections()
    with ContainerConnection(container.address, 5, InvocationDeadline.after(5), None, kept) as first:
        first.post("/invocations", [], b"{}")
        assert ask(container, kept) == b"a"
    assert len(container.accepted) == 2


def test_a_container_that_has_ended_is_not_asked_on_an_old_connection(container: Container) -> None:
    kept = IdleConnections()
    ask(container, kept)
    container.end()
    assert kept.take(container.address) is None


@pytest.mark.parametrize("reply", [LAST, BROKEN])
def test_a_reply_that_ends_its_connection_leaves_none(container: Container, reply: bytes) -> None:
    kept = IdleConnections()
    container.reply = reply
    if reply is BROKEN:
        with pytest.raises(ConnectionBroken):
            ask(container, kept)
    else:
        assert ask(container, kept) == b"a"
    assert kept.take(container.address) is None


def test_one_that_was_given_up_midway_is_closed(container: Container) -> None:
    kept = IdleConnections()
    container.reply = BROKEN
    with ContainerConnection(container.address, 5, InvocationDeadline.after(5), None, kept) as connection:
        connection.post("/invocations", [], b"{}")
        next(connection.parts())
    assert kept.take(container.address) is None


def test_none_is_kept_for_long(container: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = IdleConnections()
    ask(container, kept)
    kept.sweep()
    found = kept.take(container.address)
    assert found is not None
    kept.give(container.address, found)
    monkeypatch.setattr(idle, "SECONDS", 0.0)
    kept.sweep()
    assert found.fileno() == -1
    assert kept.take(container.address) is None
