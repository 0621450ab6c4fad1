"""Parses a request's head with llhttp and decides whether the request is eligible for the fast path. Pure.

The rule is narrow on purpose: a POST to a route that makes tokens, with a small JSON body of known length and no
unusual header. gunicorn and Flask answer every other request, valid or not, and send every error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import httptools

from handler.engine.api_routes import Route
from handler.sessions.session_errors import HEADER as SESSION_HEADER

INVOCATIONS: Final = "/invocations"
# The API of each path's body; None: any schema.
ROUTES: Final[dict[bytes, Route | None]] = {
    INVOCATIONS.encode(): None,
    Route.CHAT.encode(): Route.CHAT,
    Route.COMPLETIONS.encode(): Route.COMPLETIONS,
}
LONGEST_HEAD: Final = 8 * 1024
# A tokenizer takes a millisecond for a few thousand characters. The tokens of all other requests wait that long.
LONGEST_BODY: Final = 8 * 1024
# Digits of a Content-Length. Python's `int` raises ValueError for more than 4,300.
LONGEST_LENGTH: Final = 20
KINDS: Final = frozenset((b"application/json", b"application/json; charset=utf-8", b"application/json;charset=utf-8"))
UNUSUAL: Final = frozenset(
    (b"transfer-encoding", b"expect", b"upgrade", b"content-encoding", b"te", b"trailer", b"origin")
)
# Session requests need a lookup, and the id of a new session goes into the reply.
SESSIONS: Final = frozenset((SESSION_HEADER.lower().encode(),))
HEAD_END: Final = b"\r\n\r\n"


class NotEligible(Exception):
    """The request is not eligible for the fast path. It has had no side effects yet."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A parsed request head.

    :param size: bytes of the head; the body begins there.
    :param length: bytes of the body.
    :param environ: the WSGI environment, without the keys that only a WSGI server can provide.
    """

    size: int
    length: int
    path: str
    route: Route | None
    keep_alive: bool
    environ: dict[str, Any]


def head_of(received: bytes | bytearray) -> RequestHead | None:
    """The head of the request that these bytes begin with; None while it is incomplete.

    :raises NotEligible: a thread answers this request.
    """
    end = received.find(HEAD_END)
    if end < 0:
        if len(received) > LONGEST_HEAD or not b"POST /"[: len(received)] == received[:6]:
            raise NotEligible
        return None
    size = end + len(HEAD_END)
    if size > LONGEST_HEAD:
        raise NotEligible
    callbacks = _HeadCallbacks()
    parser = httptools.HttpRequestParser(callbacks)
    try:
        parser.feed_data(bytes(received[:size]))
    except httptools.HttpParserError:  # gunicorn's parser reports the error
        raise NotEligible from None
    headers, route = callbacks.headers, ROUTES.get(callbacks.url, NotEligible)
    if route is NotEligible or parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
        raise NotEligible
    if len(headers) != callbacks.count or headers.keys() & UNUSUAL or headers.keys() & SESSIONS:
        raise NotEligible
    length = headers.get(b"content-length", b"")
    if b"host" not in headers or headers.get(b"content-type", b"").lower() not in KINDS:
        raise NotEligible
    if not length.isdigit() or len(length) > LONGEST_LENGTH or int(length) > LONGEST_BODY:
        raise NotEligible
    path = callbacks.url.decode()
    environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": path, "SERVER_PROTOCOL": "HTTP/1.1"}
    for name, value in headers.items():
        environ[_variable(name)] = value.decode("latin-1")
    assert not isinstance(route, type)
    return RequestHead(size, int(length), path, route, parser.should_keep_alive(), environ)


class _HeadCallbacks:
    """Receives the parser's callbacks."""

    __slots__ = ("count", "headers", "url")

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[bytes, bytes] = {}
        self.count = 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if b"_" in name:  # a WSGI variable's name cannot tell "_" from "-"
            raise NotEligible
        self.headers[name.lower()] = value.strip(b" \t")
        self.count += 1

    def on_body(self, body: bytes) -> None:
        raise NotEligible  # the parser found the head's end earlier than we did

    def on_message_complete(self) -> None:
        raise NotEligible  # a request without a body


def _variable(name: bytes) -> str:
    variable = name.decode("latin-1").upper().replace("-", "_")
    return variable if variable in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{variable}"
