"""A connection by itself: bytes that come before their turn, and clients that leave meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from container.http import read_buffer
from container.http.body_budget import BodyBudget
from container.http.connection import READ_AHEAD, ClientConnection
from container.http.exchange import Exchange
from container.http.read_buffer import PIECE

HANDSHAKE = b"GET /socket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


class Owner:
    """Keeps what is to be answered."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.bodies, self.idle_seconds = BodyBudget(1 << 30, 1 << 20), 60.0
        self.begun: list[Exchange] = []
        self.has_ended: list[Exchange] = []

    def turn(self) -> None:
        """Lets the loop run what is due."""
        self.loop.run_until_complete(asyncio.sleep(0))

    def add(self, connection: ClientConnection) -> None: ...

    def discard(self, connection: ClientConnection) -> None: ...

    def begin(self, exchange: Exchange) -> None:
        self.begun.append(exchange)

    def ended(self, exchange: Exchange) -> None:
        self.has_ended.append(exchange)


class RecordedTransport(asyncio.Transport):
    """A client that takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.reading, self.closed, self.ended = b"", True, False, False

    def write(self, data: Any) -> None:
        self.written += data

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


class Frames:
    """Another protocol, which keeps what it gets."""

    idle_since = 0.0

    def __init__(self) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self) -> None: ...

    def close_if_idle(self) -> None: ...


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def transport() -> RecordedTransport:
    return RecordedTransport()


@pytest.fixture
def connection(owner: Owner, transport: RecordedTransport) -> ClientConnection:
    connection = ClientConnection(owner)
    connection.connection_made(transport)
    return connection


@pytest.mark.parametrize("together", [False, True])
def test_frames_that_come_before_the_handshake_is_answered_are_not_lost(
    owner: Owner, transport: RecordedTransport, connection: ClientConnection, together: bool
) -> None:
    for data in [HANDSHAKE + b"first"] if together else [HANDSHAKE, b"first"]:
        connection.data_received(data)
    connection.data_received(b"a" * (READ_AHEAD + 1))
    assert not transport.reading, "what waits is bounded"
    protocol = Frames()
    owner.begun[0].become(protocol, 101)
    owner.turn()
    assert transport.reading
    connection.data_received(b"last")
    assert protocol.received == b"first" + b"a" * (READ_AHEAD + 1) + b"last"


def test_requests_are_answered_in_their_order_and_each_once(
    owner: Owner, transport: RecordedTransport, connection: ClientConnection
) -> None:
    connection.data_received(GET * 3)
    assert len(owner.begun) == 1, "one at a time"
    for count in (1, 2, 3):
        owner.begun[-1].send(200, (), b"%d" % count)
        assert owner.has_ended == owner.begun[:count]
    assert [part[:1] for part in transport.written.split(b"\r\n\r\n")[1:]] == [b"1", b"2", b"3"]


def test_a_long_read_is_handled_in_several_turns_of_the_loop_and_nothing_of_it_is_lost(
    owner: Owner, transport: RecordedTransport, connection: ClientConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.data_received(HANDSHAKE)
    protocol = Frames()
    owner.begun[0].become(protocol, 101)
    monkeypatch.setattr(read_buffer, "LONGEST_TURN", 1e-9)
    sent = bytes(range(256)) * 100
    connection.data_received(sent)
    assert len(protocol.received) <= PIECE
    assert not transport.reading, "what waits is bounded"
    connection.data_received(b"more")
    monkeypatch.undo()
    for _ in range(4):
        owner.turn()
    assert protocol.received == sent + b"more"
    assert transport.reading


def test_no_more_requests_are_made_of_one_read_than_are_read_ahead(
    owner: Owner, transport: RecordedTransport, connection: ClientConnection
) -> None:
    requests = 10_000
    connection.data_received(GET * requests)
    for count in range(requests):
        assert len(connection._whole) <= (READ_AHEAD + 2 * PIECE) / len(GET)
        owner.begun[count].send(200, (), b"")
        owner.turn()
    assert len(owner.has_ended) == requests


def test_the_body_is_forgotten_when_the_reply_is_made_however_long_the_client_takes_to_read_it(
    owner: Owner, transport: RecordedTransport, connection: ClientConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.data_received(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n" + b"b" * 9000)
    (exchange,) = owner.begun
    assert (exchange.body, owner.bodies.used) == (b"b" * 9000, 9000)
    connection.pause_writing()
    exchange.send(200, (), b"reply")
    assert owner.has_ended == [], "the client has not accepted it"
    assert owner.bodies.used == 0


def test_a_refusal_waits_for_the_requests_before_it(
    owner: Owner, transport: RecordedTransport, connection: ClientConnection
) -> None:
    connection.data_received(GET + b"nonsense\r\n\r\n")
    assert not transport.written
    owner.begun[0].send(200, (), b"first")
    first, second = transport.written.split(b"HTTP/1.1 ")[1:]
    assert (first[:3], second[:3]) == (b"200", b"400")
    assert transport.ended


def test_a_client_that_has_left_is_told_to_whoever_answers_and_all_is_given_back(
    owner: Owner, transport: RecordedTransport, connection: ClientConnection
) -> None:
    connection.data_received(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}" * 2)
    left: list[str] = []
    owner.begun[0].left = left.append
    transport.close()
    connection.connection_lost(None)
    assert len(left) == 1
    owner.begun[0].break_off()
    assert owner.has_ended == owner.begun
    owner.begun[0].body_bytes.release()
    assert owner.bodies.used == 0
    assert len(owner.begun) == 1, "the next one is not begun"


def test_a_body_of_several_pieces_is_kept_once(owner: Owner, connection: ClientConnection) -> None:
    connection.data_received(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n{}")
    connection.data_received(b"  ")
    exchange = owner.begun[0]
    assert exchange.body == b"{}  "
    assert exchange.body is exchange.body


def test_a_reply_to_head_has_the_length_of_the_reply_to_get(
    owner: Owner, transport: RecordedTransport, connection: ClientConnection
) -> None:
    connection.data_received(b"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n")
    owner.begun[0].send(200, (("Content-Length", "123"),), b"")
    assert b"Content-Length: 123\r\n" in transport.written
    assert transport.written.endswith(b"\r\n\r\n")
