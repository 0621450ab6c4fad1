"""A request's head, read by llhttp, and the rule which requests the loop answers itself. Pure.

The rule is narrow on purpose: a POST to a route of tokens, with a small JSON body of known length and nothing unusual
in its headers. Every other request, right or wrong, is gunicorn's and Flask's, and so is every refusal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import httptools

from handler.engine.api_routes import Route
from handler.sessions.session_errors import HEADER as SESSION_HEADER

INVOCATIONS: Final = "/invocations"
# What a body of each path is; None: of any schema.
ROUTES: Final[dict[bytes, Route | None]] = {
    INVOCATIONS.encode(): None,
    Route.CHAT.encode(): Route.CHAT,
    Route.COMPLETIONS.encode(): Route.COMPLETIONS,
}
LONGEST_HEAD: Final = 8 * 1024
# A tokenizer takes a millisecond for a few thousand characters, which every other request's tokens would wait for.
LONGEST_BODY: Final = 8 * 1024
KINDS: Final = frozenset((b"application/json", b"application/json; charset=utf-8", b"application/json;charset=utf-8"))
UNUSUAL: Final = frozenset((b"transfer-encoding", b"expect", b"upgrade", b"content-encoding", b"te", b"trailer"))
# A session is looked up, and a new one's id is in the reply.
LOOKED_UP: Final = frozenset((SESSION_HEADER.lower().encode(),))
HEAD_END: Final = b"\r\n\r\n"


class NotEligible(Exception):
    """Another's request: nothing of it has been acted on."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What the loop needs to know of a request.

    :param size: bytes of the head; the body begins there.
    :param length: bytes of the body.
    :param environ: as WSGI has it, without what only a WSGI server can give.
    """

    size: int
    length: int
    path: str
    route: Route | None
    keep_alive: bool
    environ: dict[str, Any]


def head_of(received: bytes | bytearray) -> RequestHead | None:
    """The head of the request that these bytes begin with; None while it is not all there.

    :raises NotEligible: the loop does not answer it.
    """
    end = received.find(HEAD_END)
    if end < 0:
        if len(received) > LONGEST_HEAD or not b"POST /"[: len(received)] == received[:6]:
            raise NotEligible
        return None
    size = end + len(HEAD_END)
    if size > LONGEST_HEAD:
        raise NotEligible
    reading = _Reading()
    parser = httptools.HttpRequestParser(reading)
    try:
        parser.feed_data(bytes(received[:size]))
    except httptools.HttpParserError:  # gunicorn's parser says what is wrong
        raise NotEligible from None
    headers, route = reading.headers, ROUTES.get(reading.url, NotEligible)
    if route is NotEligible or parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
        raise NotEligible
    if len(headers) != reading.count or headers.keys() & UNUSUAL or headers.keys() & LOOKED_UP:
        raise NotEligible
    length = headers.get(b"content-length", b"")
    if headers.get(b"content-type", b"").lower() not in KINDS or not length.isdigit() or int(length) > LONGEST_BODY:
        raise NotEligible
    path = reading.url.decode()
    environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": path, "SERVER_PROTOCOL": "HTTP/1.1"}
    for name, value in headers.items():
        environ[_variable(name)] = value.decode("latin-1")
    assert not isinstance(route, type)
    return RequestHead(size, int(length), path, route, parser.should_keep_alive(), environ)


class _Reading:
    """What the parser tells."""

    __slots__ = ("count", "headers", "url")

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[bytes, bytes] = {}
        self.count = 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if b"_" in name:  # which a variable's name cannot tell from "-"
            raise NotEligible
        self.headers[name.lower()] = value.strip(b" \t")
        self.count += 1

    def on_body(self, body: bytes) -> None:
        raise NotEligible  # to the parser the head has ended before what we take for its end

    def on_message_complete(self) -> None:
        raise NotEligible  # a request without a body


def _variable(name: bytes) -> str:
    variable = name.decode("latin-1").upper().replace("-", "_")
    return variable if variable in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{variable}"
