"""The load generator against a scripted server on loopback."""

from __future__ import annotations

import asyncio
import random

import pytest

from benchmarks.lib.load_generator import LoadResult, run_load
from benchmarks.lib.request_mix import RequestMix

USAGE = '{"choices":[],"usage":{"completion_tokens":4}}'
WORDS = ["", "zażółć ", "gęślą ", "🦙"]
DELTAS = ['{"choices":[{"delta":{"content":"' + word + '"}}]}' for word in WORDS]
WHOLE = '{"choices":[{"message":{"content":"🦙"}}],"usage":{"completion_tokens":4},"error":null}'


def events(*documents: str) -> bytes:
    return "".join(f"data: {document}\n\n" for document in documents).encode()


def chunked(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:5], body[5:])) + b"0\r\n\r\n"


def counted(body: bytes, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


GOOD_STREAM = chunked(events(*DELTAS, USAGE, "[DONE]"))


def load(reply: bytes, workload: RequestMix, *, pause: float = 0.0, leave: bool = False) -> LoadResult:
    """Run the workload against a server that sends `reply`, cut anywhere, to every request."""
    cuts = random.Random(1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                rest = reply
                while rest:
                    size = cuts.randint(1, 40)
                    writer.write(rest[:size])
                    rest = rest[size:]
                    await asyncio.sleep(pause)
                if leave:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def both() -> LoadResult:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            return await run_load(workload, server.sockets[0].getsockname()[1])

    return asyncio.run(both())


def test_a_stream_cut_anywhere_is_counted_by_its_usage() -> None:
    result = load(GOOD_STREAM, RequestMix(concurrency=3, requests=9, tokens=4), pause=0.0005)
    assert {sample.error for sample in result.samples} == {None}
    assert [sample.tokens for sample in result.samples] == [4] * 9
    assert [sample.events for sample in result.samples] == [3] * 9  # the role alone is no text
    assert result.connections == 3
    for sample in result.samples:
        assert sample.sent < sample.arrivals[0] <= sample.arrivals[-1] <= sample.end


def test_a_whole_reply() -> None:
    result = load(counted(WHOLE.encode()), RequestMix(streamed=False, concurrency=2, requests=4, tokens=4))
    assert [(sample.error, sample.tokens) for sample in result.samples] == [(None, 4)] * 4


def test_a_server_that_closes_is_asked_again_on_a_new_connection() -> None:
    reply = counted(WHOLE.encode(), more="Connection: close\r\n")
    result = load(reply, RequestMix(streamed=False, concurrency=1, requests=3, tokens=4), leave=True)
    assert [sample.error for sample in result.samples] == [None] * 3
    assert result.connections == 3


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (counted(b'{"error":{"message":"busy"}}', "429 Too Many Requests"), "status 429"),
        (counted(b"oops", "500 Internal Server Error"), "status 500: oops"),
        (chunked(events(*DELTAS, '{"error":{"message":"the engine died"}}', "[DONE]")), "error object"),
        (chunked(events(*DELTAS, USAGE)), "without [DONE]"),
        (chunked(events(*DELTAS, "[DONE]")), "usage says 0"),
        (chunked(events(*DELTAS, USAGE.replace("4", "3"), "[DONE]")), "usage says 3"),
        (chunked(events(USAGE, "[DONE]")), "no text"),
        (chunked(events("{", "[DONE]")), "not the JSON"),
        (chunked(b"data: \xff\n\n"), "not the JSON"),
        (GOOD_STREAM[:-30], "closed while reading"),
        (b"", "closed while reading"),
    ],
)
def test_failures_are_failures(reply: bytes, reason: str) -> None:
    result = load(reply, RequestMix(concurrency=1, requests=1, tokens=4), leave=True)
    [sample] = result.samples
    assert reason in (sample.error or "")


def test_requests_that_the_deadline_overtakes_are_failures() -> None:
    result = load(GOOD_STREAM, RequestMix(concurrency=2, requests=5, tokens=4, deadline_s=0.2), pause=0.5)
    errors = sorted(sample.error or "" for sample in result.samples)
    assert errors == ["not answered before the deadline"] * 2 + ["not sent before the deadline"] * 3


def test_a_load_bound_in_time_ends_by_itself_and_without_failures() -> None:
    workload = RequestMix(streamed=False, concurrency=2, requests=10**6, tokens=4, seconds=0.2)
    result = load(counted(WHOLE.encode()), workload)
    assert 2 <= len(result.samples) < 10**6
    assert {sample.error for sample in result.samples} == {None}


def test_nobody_listens() -> None:
    result = asyncio.run(run_load(RequestMix(concurrency=1, requests=2), 1))
    assert all("Refused" in (sample.error or "") for sample in result.samples)
