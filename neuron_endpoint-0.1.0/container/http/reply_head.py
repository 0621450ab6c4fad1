"""Builds a reply's status line and headers, and whole replies that end a connection."""

from __future__ import annotations

import time
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus

from container.requests.error_responses import error_reply
from handler.errors import EndpointError

Header = tuple[str, str]
PHRASES = {status.value: status.phrase for status in HTTPStatus}


class ReplyHeads:
    """Builds reply heads. The date is formatted once a second."""

    __slots__ = ("_date", "_second")

    def __init__(self) -> None:
        self._second = 0
        self._date = ""

    def head(self, status: int, headers: Iterable[Header], *, keep_alive: bool, chunked: bool) -> bytes:
        lines = [
            f"HTTP/1.1 {status} {PHRASES.get(status, '')}",
            "Server: gunicorn",
            f"Date: {self._now()}",
            f"Connection: {'keep-alive' if keep_alive else 'close'}",
        ]
        if chunked:
            lines.append("Transfer-Encoding: chunked")
        lines += [f"{name}: {value}" for name, value in headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def closing_reply(self, error: EndpointError) -> bytes:
        """The bytes of an error's reply after which the connection is closed."""
        status, headers, body = error_reply(error)
        return self.head(status, (*headers, ("Content-Length", str(len(body)))), keep_alive=False, chunked=False) + body

    def _now(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True)
        return self._date
