"""Tells when the body of a request has arrived completely, of known length or in chunks. Pure."""

from __future__ import annotations

import re
from typing import Final

import httptools

from container.fast_path.request_head import HEAD_END, LONGEST_LENGTH

EXPECT: Final = re.compile(rb"\r\nexpect:[ \t]*100-continue[ \t]*(?=\r\n)", re.IGNORECASE)
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class BodyArrival:
    """One request, of which the head is complete.

    :ivar complete: nothing more has to be waited for. Also true for bytes that are not HTTP: gunicorn's parser reports
        them.
    :ivar length: the length that the head gives, in bytes. None for chunks.
    """

    __slots__ = ("_parser", "complete", "length")

    def __init__(self) -> None:
        self.complete = False
        self.length: int | None = None
        self._parser = httptools.HttpRequestParser(self)

    def feed(self, received: bytes | bytearray) -> None:
        """Takes what has arrived since the last call, from the request's first byte on."""
        try:
            self._parser.feed_data(received)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.complete = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-length" and value.isdigit() and len(value) <= LONGEST_LENGTH:
            self.length = int(value)

    def on_message_complete(self) -> None:
        self.complete = True


def without_expectation(received: bytearray) -> bool:
    """Removes `Expect: 100-continue` from a head. Returns whether it was there, so that the client waits for a 100."""
    found = EXPECT.search(received, 0, received.index(HEAD_END) + len(HEAD_END))
    if found is None:
        return False
    del received[found.start() : found.end()]
    return True
