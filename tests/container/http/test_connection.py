"""The direct path: the engine's loop writing to the socket of a real gunicorn, seen from the other end of it."""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.container.raw_http import Connection, request
from tests.container.scripted_engine import PLACES, SLOTS
from tests.container.scripted_process import MODES, PING, Server, served
from tests.handler.waiting import eventually

HOLD = {"prompt": "a|<hold>", "stream": True}
HOLD_WHOLE = {"prompt": "<hold>"}


@pytest.fixture(scope="module", params=MODES, ids=["loop", "threads"])
def process(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("scripted"), *request.param) as server:
        yield server


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    with server.connect() as connection:
        yield connection


def completion(prompt: str, *, stream: bool = False, **options: Any) -> bytes:
    return request("/v1/completions", {"prompt": prompt, "stream": stream}, **options)


def texts(body: bytes) -> list[str]:
    return re.findall(r'"text":"([^"]*)"', body.decode())


def test_a_stream_is_framed_in_chunks_an_event_each(connection: Connection) -> None:
    connection.send(completion("a|b", stream=True))
    head = connection.head()
    assert (head.version, head.status) == ("HTTP/1.1", 200)
    assert head.headers["transfer-encoding"] == "chunked"
    assert "content-length" not in head.headers
    assert head.headers["content-type"].startswith("text/event-stream")
    assert head.headers["connection"] == "keep-alive"
    assert head.headers["cache-control"] == "no-cache"
    assert "date" in head.headers
    chunks = list(iter(connection.chunk, b""))
    # litellm takes a chunk for an event, so nothing may share one, not even the last token and the end mark.
    assert [texts(chunk or b"") for chunk in chunks] == [["a"], ["b"], [""], []]
    assert chunks[-1] == b"data: [DONE]\n\n"


def test_a_token_arrives_before_the_next_is_made(server: Server, connection: Connection) -> None:
    connection.send(completion("a|<gate:arrives>|b", stream=True))
    connection.head()
    assert texts(connection.chunk() or b"") == ["a"]
    server.open("arrives")
    body, whole = connection.chunks()
    assert texts(body) == ["b", ""]
    assert whole


def test_one_connection_serves_whatever_comes_one_after_the_other(connection: Connection) -> None:
    for _ in range(2):
        head, body = connection.exchange(completion("a|b", stream=True))
        assert body.endswith(b"data: [DONE]\n\n")
        head, body = connection.exchange(completion("a|b"))
        assert texts(body) == ["ab"]
        assert head.headers["connection"] == "keep-alive"
        head, _ = connection.exchange(PING)
        assert head.status == 200
        head, _ = connection.exchange(request("/nothing"))
        assert head.status == 404


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_asks_for_it_is_closed_on(connection: Connection, stream: bool) -> None:
    head, _ = connection.exchange(completion("a", stream=stream, headers="Connection: close\r\n"))
    assert head.headers["connection"] == "close"
    assert connection.rest() == b""


@pytest.mark.parametrize("headers", ["", "Connection: keep-alive\r\n"])
def test_an_http_1_0_client_gets_a_plain_body_and_a_close(connection: Connection, headers: str) -> None:
    connection.send(completion("a|b", stream=True, version="1.0", headers=headers))
    head = connection.head()
    assert head.status == 200
    assert "transfer-encoding" not in head.headers
    assert head.headers["connection"] == "close"
    body = connection.rest()
    assert body.startswith(b"data: {")
    assert body.endswith(b"data: [DONE]\n\n")
    assert texts(body) == ["a", "b", ""]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("together", [True, False])
def test_the_next_request_may_be_sent_before_the_reply(
    server: Server, connection: Connection, first: bool, together: bool
) -> None:
    gate = f"early-{first}-{together}"
    one, two = completion(f"a|<gate:{gate}>|b", stream=first), completion("c", stream=not first)
    if together:
        connection.send(one + two)
    else:
        connection.send(one)
        eventually(lambda: server.seen()["in_engine"] == 1)
        connection.send(two)
    eventually(lambda: server.seen()["in_engine"] == 1)
    server.open(gate)
    replies = []
    for _ in range(2):
        _, body = connection.exchange(b"")
        replies.append("".join(texts(body)))
    assert replies == ["ab", "c"]
    assert server.seen()["cancelled"] == 0


def leave(connection: Connection) -> None:
    connection.close()


def reset(connection: Connection) -> None:
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("how", [leave, reset])
def test_a_client_that_leaves_its_stream_frees_the_slot(server: Server, how: Callable[[Connection], None]) -> None:
    connection = server.connect()
    connection.send(request("/v1/completions", HOLD))
    connection.head()
    assert texts(connection.chunk() or b"") == ["a"]
    how(connection)
    eventually(lambda: server.seen()["cancelled"] == 1)
    eventually(lambda: server.seen()["in_flight"] == 0)


@pytest.mark.parametrize("how", [leave, reset])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_before_a_byte_was_sent_frees_the_slot(
    server: Server, how: Callable[[Connection], None], stream: bool
) -> None:
    connection = server.connect()
    connection.send(request("/v1/completions", {**HOLD_WHOLE, "stream": stream}))
    eventually(lambda: server.seen()["in_engine"] == 1)
    how(connection)
    eventually(lambda: server.seen()["cancelled"] == 1)
    eventually(lambda: server.seen()["in_flight"] == 0)


@pytest.mark.parametrize("how", [leave, reset])
def test_a_client_that_leaves_its_lines_frees_all_their_slots(
    server: Server, how: Callable[[Connection], None]
) -> None:
    connection = server.connect()
    content = b"\n".join([b'{"prompt": "a"}', *[b'{"prompt": "<hold>"}'] * 20])
    head = "POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/jsonlines\r\n"
    connection.send(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    eventually(lambda: server.seen()["in_engine"] == SLOTS)
    how(connection)
    eventually(lambda: server.seen()["cancelled"] == SLOTS)
    eventually(lambda: server.seen()["in_flight"] == 0)


def test_a_client_that_leaves_after_a_kept_alive_request_is_noticed_too(server: Server) -> None:
    connection = server.connect()
    connection.exchange(completion("a", stream=True))
    connection.exchange(completion("a"))
    connection.send(request("/v1/completions", HOLD_WHOLE))
    eventually(lambda: server.seen()["in_engine"] == 1)
    connection.close()
    eventually(lambda: server.seen()["cancelled"] == 1)


def test_a_client_that_leaves_after_a_chunked_upload_is_noticed_too(server: Server) -> None:
    connection = server.connect()
    content = json.dumps(HOLD_WHOLE).encode()
    connection.send(
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    connection.send(b"%x\r\n%b\r\n" % (len(content), content))
    connection.send(b"0\r\n\r\n")
    eventually(lambda: server.seen()["in_engine"] == 1)
    connection.close()
    eventually(lambda: server.seen()["cancelled"] == 1)


@pytest.mark.parametrize("command", ["<fail>", "<abort>"])
def test_a_failure_midway_is_a_last_event_and_a_close_without_the_end_mark(
    connection: Connection, command: str
) -> None:
    connection.send(completion(f"a|b|{command}", stream=True))
    assert connection.head().status == 200
    body, whole = connection.chunks()
    assert not whole, "the end mark means success"
    assert texts(body) == ["a", "b"]
    assert b"[DONE]" not in body
    last = json.loads(body.split(b"\n\n")[-2].removeprefix(b"data: "))
    assert last["error"]["code"] == "generation_failed"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("script", "status"), [("<fail>", 500), ("<refuse>", 400), ("x" * 3000, 400)])
def test_a_failure_before_the_first_token_has_its_status_and_keeps_the_connection(
    connection: Connection, script: str, status: int, stream: bool
) -> None:
    for _ in range(2):
        head, body = connection.exchange(completion(script, stream=stream))
        assert head.status == status
        assert head.headers["content-type"] == "application/json"
        assert json.loads(body)["error"]["message"]
        assert head.headers["connection"] == "keep-alive"
    assert connection.exchange(completion("a"))[0].status == 200


def test_a_whole_reply_that_fails_midway_is_an_error(connection: Connection) -> None:
    head, body = connection.exchange(completion("a|<fail>"))
    assert head.status == 500
    assert json.loads(body)["error"]["code"] == "generation_failed"


def test_many_large_events_arrive_whole_on_a_slow_connection(connection: Connection) -> None:
    connection.send(completion("|".join(["<big:9000>"] * 10), stream=True))
    connection.head()
    body, whole = connection.chunks()
    assert whole
    assert [len(text) for text in texts(body)] == [9000] * 10 + [0]


def test_a_large_whole_reply_waits_for_a_slow_reader(server: Server, connection: Connection) -> None:
    connection.send(completion("<big:20000000>"))
    eventually(lambda: (seen := server.seen())["in_flight"] == 0 and seen["in_engine"] == 0)
    head = connection.head()
    assert [len(text) for text in texts(connection.content(head))] == [20_000_000]


def test_a_client_that_reads_nothing_is_cut_off_and_frees_the_slot(server: Server) -> None:
    connection = server.connect()
    connection.send(completion("<big:9000000>|<hold>", stream=True))
    eventually(lambda: server.seen()["cancelled"] == 1)
    eventually(lambda: server.seen()["in_flight"] == 0)
    connection.close()


def all_answered(server: Server, begun: int) -> bool:
    seen = server.seen()
    return seen["begun"] > begun and seen["in_flight"] == 0


def test_a_client_that_reads_nothing_of_a_whole_reply_gives_its_thread_back(server: Server) -> None:
    """There are 12 threads: were these kept, nobody would be answered any more."""
    idle = []
    for _ in range(12):
        begun = server.seen()["begun"]
        idle.append(server.connect())
        idle[-1].send(completion("<big:20000000>"))
        # The last of these answers waits for a thread.
        eventually(partial(all_answered, server, begun))
    assert server.ready()
    for connection in idle:
        connection.close()


def test_as_many_at_once_as_there_are_places(server: Server) -> None:
    streams = [server.connect() for _ in range(PLACES)]
    for stream in streams:
        stream.send(completion("a|<gate:places>|b", stream=True))
        stream.head()
    with server.connect() as connection:
        head, body = connection.exchange(completion("a"))
        assert head.status == 429
        assert int(head.headers["retry-after"]) >= 1
        error = json.loads(body)["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "too_many_requests")
        assert connection.exchange(PING)[0].status == 200
    server.open("places")
    for stream in streams:
        assert "".join(texts(stream.chunks()[0])) == "ab"
        stream.close()


def test_a_body_that_trickles_is_given_up_in_the_same_time(server: Server, connection: Connection) -> None:
    connection.send(completion("a" * 50)[:-60])
    connection.socket.settimeout(0.1)
    for _ in range(12):  # four times as long as a body may take
        connection.send(b"a")
        try:
            assert connection.socket.recv(12) == b"HTTP/1.1 408"
        except TimeoutError:
            continue
        return
    raise AssertionError(f"still waiting; {server.seen()}")


def test_a_client_that_does_not_close_its_end_keeps_nobody_waiting(server: Server) -> None:
    with server.connect() as lingering:
        lingering.send(completion("a|<fail>", stream=True))
        lingering.head()
        lingering.rest()
        with server.connect() as connection:
            connection.exchange(PING)
        for _ in range(2):  # on a connection that is closed for good the second of these fails
            lingering.send(b"a")
