"""The writer over a real socket pair, on a real loop."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from loops import on_loop
from waiting import WITHIN, eventually

from container.connection import socket_writer as module
from container.connection.socket_writer import SocketWriter
from handler.engine.event_loop import LoopThread

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
CLOSED = "the client closed the connection"


class Wire:
    """A writer, its client's end, and what the writer told."""

    def __init__(self, loop: LoopThread, head: bytes = HEAD, chunked: bool = True) -> None:
        self.loop = loop
        self.server, self.client = socket.socketpair()
        for end in (self.server, self.client):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.client.settimeout(WITHIN)
        self.told: list[str] = []
        self.writer = SocketWriter(
            self.server,
            loop.loop,
            head,
            chunked,
            lambda reason: self.told.append(f"gone: {reason}"),
            lambda: self.told.append("released"),
        )
        self.do(self.writer.watch)

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return on_loop(self.loop, lambda: function(*arguments))

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.client.recv(count - len(data))
            assert more, f"closed after {data!r}"
            data += more
        return data

    def pending(self) -> bytes:
        """What has arrived, without waiting."""
        self.client.setblocking(False)
        try:
            return self.client.recv(1 << 20)
        except BlockingIOError:
            return b""
        finally:
            self.client.settimeout(WITHIN)

    def fill(self) -> int:
        """Writes until the socket takes no more; returns the number of 1,000-byte events written."""
        count = 0
        while not self.writer._backlog:
            self.do(self.writer.write, b"x" * 1000)
            count += 1
            assert count < 10_000
        return count

    def released(self) -> bool:
        return "released" in self.told


@pytest.fixture
def wire(loop: LoopThread) -> Iterator[Wire]:
    wire = Wire(loop)
    yield wire
    wire.do(wire.writer.abandon)
    wire.client.close()
    wire.server.close()


def test_chunks_are_framed_exactly_and_the_head_comes_with_the_first(wire: Wire) -> None:
    assert not wire.writer.started
    assert wire.pending() == b""
    wire.do(wire.writer.write, b"data: a\n\n")
    assert wire.writer.started
    assert wire.pending() == HEAD + b"9\r\ndata: a\n\n\r\n"
    wire.do(wire.writer.write, b"y" * 300)
    assert wire.pending() == b"12c\r\n" + b"y" * 300 + b"\r\n"
    assert not wire.released()
    wire.do(wire.writer.finish)
    assert wire.pending() == b"0\r\n\r\n"
    assert wire.told == ["released"]
    assert wire.writer.sent == 309


def test_nothing_is_no_chunk_for_that_would_be_the_end(wire: Wire) -> None:
    wire.do(wire.writer.write, b"")
    assert wire.pending() == b""
    assert not wire.writer.started


def test_an_empty_body_is_a_head_and_an_end(wire: Wire) -> None:
    wire.do(wire.writer.finish)
    assert wire.pending() == HEAD + b"0\r\n\r\n"
    assert wire.told == ["released"]


def test_abandoned_there_is_no_end_mark(wire: Wire) -> None:
    wire.do(wire.writer.write, b"a")
    wire.do(wire.writer.abandon)
    assert wire.pending() == HEAD + b"1\r\na\r\n"
    assert wire.told == ["released"]
    wire.do(wire.writer.finish)
    wire.do(wire.writer.abandon)
    assert wire.told == ["released"], "it is released once"


def test_unframed_for_http_1_0(loop: LoopThread) -> None:
    wire = Wire(loop, chunked=False)
    for data in (b"one", b"two"):
        wire.do(wire.writer.write, data)
    wire.do(wire.writer.finish)
    assert wire.pending() == HEAD + b"onetwo"
    assert wire.told == ["released"]


def test_what_a_slow_reader_leaves_is_kept_and_arrives_whole(wire: Wire) -> None:
    count = wire.fill()
    for number in range(50):
        wire.do(wire.writer.write, b"%05d" % number)
    wire.do(wire.writer.finish)
    assert wire.told == [], "it is not released while bytes are kept"
    expected = HEAD + (b"3e8\r\n" + b"x" * 1000 + b"\r\n") * count
    expected += b"".join(b"5\r\n%05d\r\n" % number for number in range(50)) + b"0\r\n\r\n"
    assert wire.read(len(expected)) == expected
    eventually(wire.released)
    assert wire.told == ["released"]
    assert wire.pending() == b""


def test_after_it_has_caught_up_events_go_straight_out_again(wire: Wire) -> None:
    count = wire.fill()
    wire.read(len(HEAD) + count * 1007)
    eventually(lambda: not wire.writer._backlog)
    wire.do(wire.writer.write, b"now")
    assert wire.pending() == b"3\r\nnow\r\n"


def test_a_reader_too_far_behind_is_cut_off(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BACKLOG", 3000)
    wire.fill()
    for _ in range(5):
        wire.do(wire.writer.write, b"x" * 1000)
    assert [told.partition(":")[0] for told in wire.told] == ["gone", "released"]
    assert "behind" in wire.told[0]
    assert not wire.writer.open
    wire.do(wire.writer.finish)
    assert len(wire.told) == 2
    received = b""
    while more := wire.pending():
        received += more
    assert not received.endswith(b"0\r\n\r\n")


def test_a_reader_that_takes_nothing_is_cut_off_in_time(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SILENCE", 0.05)
    wire.fill()
    wire.do(wire.writer.finish)
    eventually(wire.released)
    assert wire.told == ["gone: the client accepted no data for 0.05 s", "released"]


def test_a_reader_that_is_slow_but_takes_something_is_not(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SILENCE", 0.5)
    count = wire.fill() + 100
    for _ in range(100):
        wire.do(wire.writer.write, b"x" * 1000)
    wire.do(wire.writer.finish)
    slices, rest = divmod(len(HEAD) + count * 1007 + 5, 10)
    for _ in range(10):  # together longer than the silence that is allowed
        wire.read(slices)
        threading.Event().wait(0.07)
    wire.read(rest)
    assert wire.told == ["released"]


def test_a_timer_does_not_outlive_the_backlog(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SILENCE", 0.5)
    count = wire.fill()
    wire.read(len(HEAD) + count * 1007)
    eventually(lambda: not wire.writer._backlog)
    assert wire.writer._timer is None
    wire.do(wire.writer.finish)
    assert wire.told == ["released"]


def test_a_client_that_leaves_before_the_first_byte_is_noticed(wire: Wire) -> None:
    wire.client.close()
    eventually(wire.released)
    assert wire.told == [f"gone: {CLOSED}", "released"]
    for act in (lambda: wire.writer.write(b"x"), wire.writer.finish, wire.writer.abandon):
        wire.do(act)
    assert wire.told == [f"gone: {CLOSED}", "released"], "each is told once"


def test_a_client_that_leaves_with_bytes_unread_is_noticed(wire: Wire) -> None:
    wire.fill()
    wire.client.close()
    eventually(wire.released)
    assert wire.told == [f"gone: {CLOSED}", "released"]


def test_a_client_that_left_is_noticed_by_a_write_too(wire: Wire) -> None:
    def leave_and_write() -> None:  # in one turn of the loop: the reader cannot have seen it
        wire.client.close()
        wire.writer.write(b"x")
        wire.writer.write(b"x")

    wire.do(leave_and_write)
    eventually(wire.released)
    assert wire.told == [f"gone: {CLOSED}", "released"]


def test_the_next_request_sent_early_is_left_where_it_is(wire: Wire) -> None:
    wire.client.sendall(b"GET /ping HTTP/1.1\r\n\r\n")
    wire.do(wire.writer.write, b"a")
    wire.do(lambda: None)
    assert wire.told == []
    wire.do(wire.writer.finish)
    assert wire.told == ["released"]
    assert wire.server.recv(100, socket.MSG_DONTWAIT) == b"GET /ping HTTP/1.1\r\n\r\n"


def test_once_released_the_socket_is_nobodys_on_the_loop(wire: Wire) -> None:
    wire.do(wire.writer.finish)
    wire.client.sendall(b"next")
    wire.client.close()
    wire.do(lambda: None)
    assert wire.told == ["released"]
    wire.server.setblocking(True)
    assert wire.server.recv(100) == b"next"
