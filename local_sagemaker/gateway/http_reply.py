"""A container's reply, read from bytes cut anywhere. No input or output here.

httptools, whose parser is written in C, rather than h11: a streamed token is a chunk of its own, and h11 takes some
20 microseconds for each; that is more than everything else that is done with it here.
"""

from __future__ import annotations

from dataclasses import dataclass

import httptools

CLOSED = "the connection closed before the response was complete"


@dataclass(frozen=True, slots=True)
class ReplyHead:
    status: int
    headers: dict[str, str]

    def get(self, name: str) -> str | None:
        return self.headers.get(name.lower())


class ReplyReader:
    """:ivar head: None until it is whole.
    :ivar complete: the body has ended as it should.
    :ivar keep_alive: after it, the connection takes another request.
    :ivar error: why no more will come; what came before is still to be taken.
    """

    def __init__(self) -> None:
        self.head: ReplyHead | None = None
        self.complete = False
        self.keep_alive = False
        self.error: str | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """What the socket gave; nothing at its end."""
        if not data:
            self._end()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.complete:
                self.error = f"no valid HTTP: {error}"

    def take(self) -> list[bytes]:
        """The body's bytes since the last time, a chunk at a time: two that come together stay two."""
        taken, self._body = self._body, []
        return taken

    def _end(self) -> None:
        if self.head is not None and not {"content-length", "transfer-encoding"} & self.head.headers.keys():
            self.complete = True  # Its end is how such a body says that it is whole.
        elif not self.complete:
            self.error = self.error or CLOSED

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.head = ReplyHead(status, self._headers)
        self._headers = {}

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        self.complete = self.head is not None  # Else it was a 1xx.
        self.keep_alive = self.complete and self._parser.should_keep_alive()
