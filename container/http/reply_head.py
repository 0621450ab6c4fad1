"""Builds a reply's status line and headers, and whole replies that end a connection."""

from __future__ import annotations

import time
from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from container.requests.error_responses import error_reply
from handler.errors import EndpointError

Header = tuple[str, str]
PHRASES = {status.value: status.phrase for status in HTTPStatus}


def reply_head(status: int, headers: Iterable[Header], *, keep_alive: bool, chunked: bool) -> bytes:
    """The status line and the headers."""
    lines = [
        f"HTTP/1.1 {status} {PHRASES.get(status, '')}",
        "Server: gunicorn",
        f"Date: {_date(int(time.time()))}",
        f"Connection: {'keep-alive' if keep_alive else 'close'}",
    ]
    if chunked:
        lines.append("Transfer-Encoding: chunked")
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def closing_reply(error: EndpointError, path: str = "") -> bytes:
    """The bytes of an error's reply after which the connection is closed.

    :param path: of the request, if it is known.
    """
    status, headers, body = error_reply(error, path)
    return reply_head(status, (*headers, ("Content-Length", str(len(body)))), keep_alive=False, chunked=False) + body


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
