"""Clients that send their body slowly hold no thread, and all bodies together have a budget of bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from container.http.body_budget import BodyBudget, BodyBytes
from handler.errors import BodiesTooLarge, BodyTooLarge
from tests.container.raw_http import Connection, Head, request
from tests.container.scripted_process import MODES, PING, THREADS, Server, served
from tests.handler.waiting import eventually

MANY = 2 * THREADS
BUDGET = 6000
# Of the 4,000 that one body may have.
LARGE = b'{"prompt": "a"%b}' % (b" " * 3000)
HEAD = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def of_length(body: bytes, headers: bytes = b"") -> bytes:
    return HEAD + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


def in_chunks(body: bytes) -> bytes:
    pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


@pytest.fixture(scope="module", params=MODES, ids=["loop", "threads"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("bodies"), "--patient", *request.param) as server:
        yield server


@pytest.fixture(scope="module", params=MODES, ids=["loop", "threads"])
def small_budget(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("budget"), "--patient", f"--budget={BUDGET}", *request.param) as server:
        yield server


def sent(server: Server, data: bytes) -> tuple[Head, bytes]:
    with server.connect() as connection:
        return connection.exchange(data)


@pytest.mark.parametrize("whole", [of_length(LARGE), in_chunks(LARGE), request("/invocations", {"prompt": "a"})])
def test_half_a_body_holds_no_thread_and_is_answered_once_it_is_whole(server: Server, whole: bytes) -> None:
    half = len(whole) - 8
    with ExitStack() as held:
        connections = [held.enter_context(server.connect()) for _ in range(MANY)]
        for connection in connections:
            connection.send(whole[:half])
        assert sent(server, PING)[0].status == 200
        for data in (request("/nothing"), request("/v1/completions", {"prompt": "a"}), of_length(LARGE)):
            assert sent(server, data)[0].status in (200, 404)
        for connection in connections:
            assert connection.exchange(whole[half:])[0].status == 200


def test_a_client_that_waits_for_100_gets_it_once(server: Server) -> None:
    whole = of_length(LARGE, b"Expect: 100-continue\r\n")
    with server.connect() as connection:
        connection.send(whole[: -len(LARGE)])
        assert connection.head().status == 100
        assert connection.exchange(LARGE)[0].status == 200


def test_requests_in_one_packet_after_a_large_body_are_answered(server: Server) -> None:
    with server.connect() as connection:
        for large in (of_length(LARGE), in_chunks(LARGE)):
            assert connection.exchange(large + PING)[0].status == 200
            assert connection.content(connection.head()) is not None


def test_a_body_that_is_too_large_is_rejected_before_it_comes(server: Server) -> None:
    with server.connect() as connection:
        connection.send(HEAD + b"Content-Length: 5000\r\n\r\n" + b"{")
        assert connection.head().status == 413


def test_bodies_beyond_the_budget_get_a_429_that_names_it(small_budget: Server) -> None:
    whole = of_length(LARGE)
    with ExitStack() as held:
        waiting = [held.enter_context(small_budget.connect()) for _ in range(3)]
        for connection in waiting[:-1]:
            connection.send(of_length(LARGE, b"Expect: 100-continue\r\n")[:-1500])
            assert connection.head().status == 100  # the bytes so far are taken before any others
        head, body = sent(small_budget, whole)
        error = json.loads(body)["error"]
        assert (head.status, error["param"], error["code"]) == (429, "body", "too_many_body_bytes")
        assert "ENDPOINT_BODY_BUDGET" in error["message"]
        assert head.headers["retry-after"] == "1"
        assert sent(small_budget, PING)[0].status == 200
        waiting[-1].send(whole[:-8])  # one that is still arriving is refused as well
        assert waiting[-1].head().status == 429
    eventually(lambda: not refused(small_budget, whole))


def refused(server: Server, data: bytes) -> bool:
    return sent(server, data)[0].status == 429


ENDINGS: list[Callable[[Connection], object]] = [
    lambda one: one.exchange(of_length(LARGE)),
    lambda one: one.exchange(in_chunks(LARGE)),
    lambda one: one.exchange(of_length(LARGE[:-1])),
    lambda one: one.exchange(of_length(LARGE).replace(b"/invocations", b"/nothing")),
    lambda one: one.exchange(of_length(LARGE).replace(b"application/json", b"text/css")),
    lambda one: one.send(of_length(LARGE)[:-100]),
    lambda one: one.send(in_chunks(LARGE)[:-100]),
    lambda one: one.send(of_length(LARGE)),
]


def test_the_budget_is_free_again_whatever_a_request_ends_with(small_budget: Server) -> None:
    for _ in range(4):
        for ending in ENDINGS:
            with small_budget.connect() as connection:
                ending(connection)
    almost_all = of_length(LARGE.replace(b"  ", b"   ", 800))
    with small_budget.connect() as held:  # nothing of the budget is lost
        held.send(almost_all[: BUDGET - len(almost_all)])
        eventually(lambda: not refused(small_budget, almost_all))


def test_only_a_body_that_others_leave_no_room_for_may_be_tried_again() -> None:
    first = BodyBytes(BodyBudget(limit=10, largest=100))
    with pytest.raises(BodyTooLarge):
        first.take(11)
    first.take(6)
    with pytest.raises(BodiesTooLarge):
        BodyBytes(first._budget).take(6)
