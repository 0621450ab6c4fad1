"""Replies and events cut at arbitrary bytes."""

from __future__ import annotations

import random

import pytest

from benchmarks.lib.reply_reader import BrokenReply, ReplyParser, server_sent_events

TEXT = 'data: {"text":"ż–🦙"}\n\n: a comment\n\ndata: one\ndata: two\n\ndata:[DONE]\n\n'.encode()
EVENTS = ['{"text":"ż–🦙"}'.encode(), b"one\ntwo", b"[DONE]"]


def chunked(body: bytes, size: int, extension: bytes = b"") -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    framed = b"".join(b"%X%s\r\n%s\r\n" % (len(part), extension, part) for part in parts)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"


def pieces(data: bytes, seed: int) -> list[bytes]:
    cuts = sorted(random.Random(seed).sample(range(1, len(data)), 12))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize("seed", range(10))
def test_chunks_and_events_survive_any_cut(size: int, seed: int) -> None:
    parser = ReplyParser()
    arrivals = [(float(n), parser.feed(piece)) for n, piece in enumerate(pieces(chunked(TEXT, size), seed))]
    assert parser.complete
    assert parser.keep_alive
    assert parser.status == 200
    assert b"".join(body for _, body in arrivals) == TEXT
    assert [data for _, data in server_sent_events(arrivals)] == EVENTS


def test_byte_by_byte_is_the_same() -> None:
    parser = ReplyParser()
    body = b"".join(parser.feed(bytes([byte])) for byte in chunked(TEXT, 5, b";ext=1"))
    assert (parser.complete, body) == (True, TEXT)


def test_an_event_has_the_time_of_the_read_that_completed_it() -> None:
    arrivals = [(1.0, b"data: a\n"), (2.0, b"\ndata: b\n\nda"), (3.0, b"ta: c\r\n\r"), (4.0, b"\n")]
    assert list(server_sent_events(arrivals)) == [(2.0, b"a"), (2.0, b"b"), (4.0, b"c")]


def test_counted_body_then_closing() -> None:
    parser = ReplyParser()
    head = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 5\r\nConnection: Close\r\n\r\n"
    assert parser.feed(head + b"he") == b"he"
    assert not parser.complete
    assert parser.feed(b"llo") == b"llo"
    assert (parser.complete, parser.keep_alive, parser.status) == (True, False, 503)


def test_a_body_without_length_ends_with_the_connection() -> None:
    parser = ReplyParser()
    assert parser.feed(b"HTTP/1.0 200 OK\r\n\r\nsome") + parser.feed(b"thing") == b"something"
    assert not parser.complete
    parser.end_of_stream()
    assert parser.complete


@pytest.mark.parametrize("cut", [10, 60, 75])
def test_leaving_in_the_middle_is_an_error(cut: int) -> None:
    parser = ReplyParser()
    parser.feed(chunked(TEXT, 40)[:cut])
    with pytest.raises(BrokenReply):
        parser.end_of_stream()


@pytest.mark.parametrize(
    "data",
    [b"SSH-2.0-x\r\n\r\n", chunked(b"x", 1).replace(b"\r\n1\r\n", b"\r\nzz\r\n"), chunked(b"x", 1) + b"more"],
)
def test_what_is_not_http_is_an_error(data: bytes) -> None:
    with pytest.raises(BrokenReply):
        ReplyParser().feed(data)
