"""Parses HTTP/1.1 replies and server-sent events from bytes that are cut anywhere. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import httptools


class BrokenReply(Exception):
    """The peer disconnected during a reply, or did not send HTTP/1.1."""


class ReplyParser:
    """Parses one reply incrementally, with httptools.

    :ivar status: 0 until the head is complete.
    :ivar keep_alive: whether the connection accepts another request after the complete reply.
    """

    def __init__(self) -> None:
        self.status = 0
        self.keep_alive = False
        self.complete = False
        self._has_length = False
        self._body: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> bytes:
        """Takes the bytes of a socket read. Returns the part of the body in them, without framing."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise BrokenReply(f"not one HTTP reply: {error}") from None
        body, self._body = b"".join(self._body), []
        return body

    def end_of_stream(self) -> None:
        """Called when the peer has closed. This ends a body without a length, and is an error otherwise."""
        if not self.status or self._has_length:
            raise BrokenReply(f"the connection was closed while reading the {'body' if self.status else 'head'}")
        self.complete = True

    def on_message_begin(self) -> None:
        if self.complete:
            raise BrokenReply("bytes after the end of the reply")

    def on_header(self, name: bytes, _value: bytes) -> None:
        self._has_length |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self.status = status if status >= 200 else 0  # the reply proper follows an interim one

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        self.complete = bool(self.status)
        self.keep_alive = self._parser.should_keep_alive()


def server_sent_events(arrivals: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Yields each event as (time of the read that completed it, its data). Comments are dropped.

    It works on bytes, so a character that was cut is complete before it is decoded. Carriage returns are removed first
    (JSON never contains a raw one), which covers both line ends that servers use.
    """
    pending = b""
    for when, data in arrivals:
        *events, pending = (pending + data.replace(b"\r", b"")).split(b"\n\n")
        for event in events:
            values = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
            if values:
                yield when, b"\n".join(values)
