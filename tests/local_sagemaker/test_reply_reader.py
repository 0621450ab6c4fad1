"""A container's chunks as they become payload parts: clients such as litellm take a part for an event."""

from __future__ import annotations

from local_sagemaker.gateway.http_reply import ReplyReader

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_chunks_that_come_together_stay_apart() -> None:
    reader = ReplyReader()
    reader.feed(HEAD + chunk(b"data: 1\n\n") + chunk(b"data: 2\n\n") + b"0\r\n\r\n")
    assert reader.take() == [b"data: 1\n\n", b"data: 2\n\n"]
    assert reader.complete
    assert reader.take() == []


def test_nothing_waits_for_the_rest_of_its_chunk() -> None:
    reader = ReplyReader()
    reader.feed(HEAD + chunk(b"data: 1\n\n")[:-6])
    assert reader.take() == [b"data:"]
    reader.feed(chunk(b"data: 1\n\n")[-6:])
    assert reader.take() == [b" 1\n\n"]
