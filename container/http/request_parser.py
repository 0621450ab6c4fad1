"""Parses requests with llhttp (httptools). A request is its WSGI environment, which Flask understands as well."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import unquote_to_bytes

import httptools

from handler.errors import HeadersTooLong, InvalidRequest, LineTooLong, UnmetExpectation

# Bytes of a request line, headers and bytes of a header: gunicorn's limits. Bytes of a whole head.
MAX_LINE, MAX_FIELDS, MAX_FIELD, MAX_HEAD = 4094, 100, 8190, 32 * 1024
# Python's `int` raises ValueError for more than 4,300.
MAX_DIGITS = 20
VERSIONS: Final = ("1.0", "1.1")
# Headers that say where a request ends, or whose it is. A second one is an error, not a list.
SINGLE: Final = frozenset(("HTTP_HOST", "CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING"))
# Not in HTTP/1.1's paths (RFC 3986): a proxy in front might read them in another way.
UNSAFE = re.compile(rb"[\x00-\x20\x7f]")


@dataclass(slots=True, eq=False)
class RequestHead:
    """A request without its body.

    :ivar environ: the WSGI environment, without the keys that begin with `wsgi.`.
    :ivar length: bytes of the body. None: it comes in chunks.
    :ivar expects: the client waits for `100 Continue` before it sends the body.
    :ivar upgrades: the connection is a WebSocket's if the path is.
    """

    environ: dict[str, Any]
    length: int | None
    keep_alive: bool
    expects: bool
    upgrades: bool


class Receiver(Protocol):
    """Who gets what a parser reads. An EndpointError that a method raises ends the connection."""

    def head_complete(self, head: RequestHead) -> None: ...

    def body_arrived(self, piece: bytes) -> None: ...

    def request_complete(self) -> bool:
        """Returns whether the bytes that follow are another protocol's."""
        ...

    def other_protocol(self, received: bytes) -> None:
        """Gets these bytes."""
        ...


class RequestParser:
    """The requests of one connection.

    What belongs to no body is bounded, in a head and behind it: trailers and the extensions of chunks.

    llhttp reads no body of a request that offers an upgrade, and takes it for the next request
    (MagicStack/httptools#124). Java's HttpClient offers one with each request.

    :ivar begun: bytes of a request have arrived, and its head is not complete.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._reset()
        self._other = self._repeating = False

    def _begin_body(self, framing: bytes) -> None:
        """Reads a body with a parser of its own. Its request's head has been told."""
        self._parser, self._unread, self._repeating = httptools.HttpRequestParser(self), b"", True
        self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")
        self._repeating = False

    def _reset(self) -> None:
        # The header that frames a body which llhttp does not read, because its request offers an upgrade.
        self._unread = b""
        self._target = b""
        self._headers: dict[str, str] = {}
        self._fields = 0
        self._in_body = False
        self._arrived = 0
        self.begun = False

    def feed(self, data: bytes) -> None:
        """Takes bytes of the connection.

        :raises EndpointError: they are not a request that can be answered. Nothing more may be fed.
        """
        if self._other:
            self._receiver.other_protocol(data)
            return
        while data:
            rest = b""
            self._arrived += len(data)
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                rest, other = data[upgrade.args[0] :], self._other
                if other:
                    self._receiver.other_protocol(rest)
                    return
                if self._unread:
                    self._begin_body(self._unread)
                else:
                    self._begin()
            except httptools.HttpParserCallbackError as error:
                raise error.__context__ or InvalidRequest("it is not HTTP/1.1") from None
            except httptools.HttpParserError as error:
                raise InvalidRequest(_problem(error, self._in_body)) from None
            data = rest
        if self._arrived > MAX_HEAD and (self.begun or self._in_body):
            long_line = not self._headers and len(self._target) > MAX_LINE
            raise LineTooLong if long_line else HeadersTooLong

    def close(self) -> None:
        """Ends what refers to itself, so that no garbage collection has to find it. Nothing may be fed afterwards."""
        del self._parser, self._receiver

    def on_message_begin(self) -> None:
        self.begun = not self._repeating

    def on_url(self, url: bytes) -> None:
        if self._repeating:
            return
        self._target += url
        if len(self._target) > MAX_LINE:
            raise LineTooLong

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return  # a trailer
        self._fields += 1
        if self._fields > MAX_FIELDS or len(name) + len(value) > MAX_FIELD:
            raise HeadersTooLong
        if b"_" in name:
            return  # as a variable it would look like the header with "-", which a proxy in front may have checked
        variable = name.decode("latin-1").upper().replace("-", "_")
        if variable not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            variable = f"HTTP_{variable}"
        text = value.strip(b" \t").decode("latin-1")
        if variable in self._headers:
            if variable in SINGLE:
                raise InvalidRequest(f"the header '{name.decode('latin-1')}' occurs twice")
            text = f"{self._headers[variable]}{';' if variable == 'HTTP_COOKIE' else ','}{text}"
        self._headers[variable] = text

    def on_headers_complete(self) -> None:
        if self._repeating:
            return
        parser, headers = self._parser, self._headers
        version = parser.get_http_version()
        if version not in VERSIONS:
            raise InvalidRequest("its version is not HTTP/1.0 or HTTP/1.1")
        if version == "1.1" and "HTTP_HOST" not in headers:
            raise InvalidRequest("it has no 'Host' header, which HTTP/1.1 requires")
        if parser.get_method() == b"CONNECT":  # llhttp reads no body of it, and whoever is in front may
            raise InvalidRequest("this is no proxy")
        coding = headers.pop("HTTP_TRANSFER_ENCODING", None)
        if coding is not None and (coding.lower() != "chunked" or version == "1.0"):
            raise InvalidRequest("'Transfer-Encoding' may be 'chunked' only")
        expectation = headers.pop("HTTP_EXPECT", None)
        if expectation is not None and expectation.lower() != "100-continue":
            raise UnmetExpectation
        path, query = _path_and_query(self._target)
        environ: dict[str, Any] = {
            "REQUEST_METHOD": parser.get_method().decode("latin-1"),
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "RAW_URI": self._target.decode("latin-1"),
            "SERVER_PROTOCOL": f"HTTP/{version}",
            **headers,
        }
        length = headers.get("CONTENT_LENGTH", "0")
        if len(length) > MAX_DIGITS:
            raise InvalidRequest("its 'Content-Length' is not a number of bytes")
        self._in_body, self.begun, self._arrived = True, False, 0
        has_body = coding is not None or int(length) > 0
        if parser.should_upgrade() and has_body:
            self._unread = b"Transfer-Encoding: chunked" if coding else b"Content-Length: " + length.encode()
        self._receiver.head_complete(
            RequestHead(
                environ,
                int(length) if coding is None else None,
                parser.should_keep_alive(),
                expectation is not None and version == "1.1" and has_body,
                parser.should_upgrade() and not has_body and headers.get("HTTP_UPGRADE", "").lower() == "websocket",
            )
        )

    def on_body(self, body: bytes) -> None:
        self._arrived = 0
        self._receiver.body_arrived(body)

    def on_message_complete(self) -> None:
        if self._unread:
            return  # its body follows
        self._reset()
        self._other = self._receiver.request_complete()


def _path_and_query(target: bytes) -> tuple[str, str]:
    """The path, decoded, and the query, of a request's target in origin form or in absolute form (RFC 9112, 3.2)."""
    if target.startswith(b"/"):
        path, _, query = target.partition(b"#")[0].partition(b"?")
    elif target == b"*":
        path, query = target, b""
    else:
        try:
            url = httptools.parse_url(target)
        except httptools.HttpParserInvalidURLError:
            raise InvalidRequest("its first line is not valid HTTP") from None
        if url.schema is None:  # the authority form of CONNECT
            raise InvalidRequest("its first line is not valid HTTP")
        path, query = url.path or b"/", url.query or b""
    if UNSAFE.search(target):
        raise InvalidRequest("its first line is not valid HTTP")
    return (unquote_to_bytes(path) if b"%" in path else path).decode("latin-1"), query.decode("latin-1")


def _problem(error: httptools.HttpParserError, in_body: bool) -> str:
    if isinstance(error, httptools.HttpParserInvalidMethodError):
        return "its method is not an HTTP method"
    if isinstance(error, httptools.HttpParserInvalidURLError):
        return "its first line is not valid HTTP"
    return "its chunks are broken" if in_body else "it is not HTTP/1.1, or a header is not valid"
