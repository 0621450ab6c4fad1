"""One request and its reply. Whoever answers a request writes to its exchange, which frames the bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from werkzeug.wrappers import Request

from container.http.body_budget import BodyBytes
from container.http.read_buffer import ReadBuffer
from container.http.reply_buffer import ReplyBuffer
from container.http.reply_head import Header, reply_head
from container.http.request_parser import RequestHead
from container.recovery.request_channel import RequestNote
from container.requests.error_responses import error_reply
from container.requests.request_record import HANDED_OVER, KEY, RequestRecord
from handler.errors import EndpointError

CLIENT_CLOSED = "the client closed the connection"
END_MARK = b"0\r\n\r\n"
# Replies with these have no body, and no length.
BODILESS = frozenset((204, 304))


class OtherProtocol(Protocol):
    """What a connection becomes after a handshake."""

    idle_since: float

    def data_received(self, data: bytes) -> None: ...

    def connection_lost(self) -> None: ...

    def close_if_idle(self) -> None:
        """Closes the connection, unless something runs on it."""
        ...


class ExchangeConnection(Protocol):
    """The part of a connection that its exchanges use."""

    transport: asyncio.Transport
    arrivals: ReadBuffer
    replies: ReplyBuffer

    def reply_written(self, exchange: Exchange, *, whole: bool) -> None:
        """The reply has ended.

        :param whole: it is complete. Otherwise the connection is closed, without the end mark that means success.
        """
        ...

    def descriptor(self) -> int: ...

    def close(self) -> None:
        """Closes the connection, after what was written."""
        ...

    def become(self, protocol: OtherProtocol) -> None: ...


@dataclass(eq=False, repr=False)
class Exchange:
    """A request that has arrived, and its reply. All methods run on the loop.

    :param note: the request was begun by an earlier process, and is admitted already.
    :ivar headers: headers that every reply has, errors too.
    :ivar admitted: it is counted already, because custom code has seen it. Whoever answers it ends the count.
    :ivar left: called once, with the reason, when the client has left or was cut off.
    :ivar open: the client can still be written to.
    :ivar sent: bytes of the reply's body.
    :ivar finished: the reply has ended, or was given up.
    """

    connection: ExchangeConnection
    head: RequestHead
    body_bytes: BodyBytes
    note: RequestNote | None = None
    headers: list[Header] = field(default_factory=list)
    admitted: bool = False
    left: Callable[[str], None] | None = None
    open: bool = True
    sent: int = 0
    finished: bool = False
    keep_alive: bool = field(init=False)
    record: RequestRecord = field(init=False)
    _body: bytes | bytearray = field(default_factory=bytearray)
    _stream_head: bytes = b""
    _chunked: bool = False

    def __post_init__(self) -> None:
        environ = self.head.environ
        self.record = environ[KEY] = RequestRecord(environ)
        self.keep_alive = self.head.keep_alive

    @cached_property
    def request(self) -> Request:
        """The request's headers and path."""
        return Request(self.head.environ, populate_request=False)  # it would be in its own environment

    @property
    def body(self) -> bytes:
        if not isinstance(self._body, bytes):
            self._body = bytes(self._body)
        return self._body

    @property
    def path(self) -> str:
        """The path as Flask sees it: decoded as UTF-8, with one slash in front."""
        return self.request.path

    @property
    def method(self) -> str:
        return str(self.head.environ["REQUEST_METHOD"])

    def body_arrived(self, piece: bytes) -> None:
        """:raises EndpointError: there is no room for it."""
        self.body_bytes.take(len(piece))
        self._body += piece

    def send(self, status: int, headers: Iterable[Header], body: bytes) -> None:
        """Sends a whole reply."""
        if self.finished:
            return
        self.record.status = status
        if self.method == "HEAD":  # the length is that of the reply to GET, if it is known
            all_headers, body = (*headers, *self.headers), b""
        else:
            body = b"" if status in BODILESS else body
            length = () if status in BODILESS else (("Content-Length", str(len(body))),)
            all_headers = (*(header for header in headers if header[0] != "Content-Length"), *length, *self.headers)
        head = reply_head(status, all_headers, keep_alive=self.keep_alive, chunked=False)
        self._end(head + body, whole=True)

    def fail(self, error: EndpointError) -> None:
        """Sends an error. Of a reply that has begun, nothing more is sent."""
        self.record.failed(error)
        if self.sent or self.finished:
            self.break_off()
        else:
            self.send(*error_reply(error, self.path, of_message=self.record.of_message))

    def begin(self, status: int, headers: Iterable[Header], length: int | None = None) -> None:
        """Sets the status and the headers of a reply of several pieces. They are sent with the first piece.

        :param length: bytes of the body, if they are known.
        """
        self.record.status = status
        self._chunked = length is None and self.head.environ["SERVER_PROTOCOL"] == "HTTP/1.1"
        self.keep_alive = self.keep_alive and (self._chunked or length is not None)
        lengths = () if length is None else (("Content-Length", str(length)),)
        self._stream_head = reply_head(
            status, (*headers, *lengths, *self.headers), keep_alive=self.keep_alive, chunked=self._chunked
        )

    def write(self, *events: bytes) -> None:
        """Sends events, each as its own chunk, in one system call."""
        data = self._framed(events)
        if data:
            self.connection.replies.write(data, bounded=True)

    def finish(self, *events: bytes) -> None:
        """Sends the last events and the body's end mark."""
        data = self._framed(events)
        if not self.finished:
            data, self._stream_head = self._stream_head + data, b""
            self._end(data + END_MARK if self._chunked else data, whole=True)

    def _framed(self, events: Sequence[bytes]) -> bytes:
        data = b""
        for event in events if self.open else ():
            if event:
                self.sent += len(event)
                data += b"%x\r\n%b\r\n" % (len(event), event) if self._chunked else event
        if data and self._stream_head:
            data, self._stream_head = self._stream_head + data, b""
        return data

    def break_off(self) -> None:
        """Ends the reply where it is. The connection is closed, without the end mark that means success."""
        if not self.finished:
            self._end(b"", whole=False)

    def _end(self, data: bytes, *, whole: bool) -> None:
        self.finished = True
        self._body = b""  # a client may take long to read its reply
        self.body_bytes.release()
        if self.open and data:
            self.connection.replies.write(data, bounded=False)
        self.connection.reply_written(self, whole=whole and self.open)

    def client_left(self, reason: str) -> None:
        """The client has left, or is cut off."""
        if self.open:
            self.open = False
            self.record.left = reason
            if self.left is not None:
                self.left(reason)

    def hand_over(self) -> None:
        """Closes this process's end of the connection. The next serving process answers the request."""
        self.record.status, self.record.end = 503, HANDED_OVER
        self.open, self.finished = False, True
        self.connection.transport.abort()
        self.connection.reply_written(self, whole=False)

    def become(self, protocol: OtherProtocol, status: int) -> None:
        """Gives the connection to another protocol, which the client has asked for.

        :param status: of the answer to the handshake.
        """
        self.record.status = status
        self.finished = True
        self.connection.become(protocol)


async def send_pieces(exchange: Exchange, pieces: Iterable[bytes], threads: Executor) -> None:
    """Sends the body of a reply that has begun, as its pieces are made, in a thread.

    :raises Exception: what making a piece raises.
    """
    loop, iterator = asyncio.get_running_loop(), iter(pieces)
    while exchange.open:
        piece = await loop.run_in_executor(threads, next, iterator, None)
        if piece is None:
            exchange.finish()
            return
        exchange.write(piece)
        await exchange.connection.replies.accepted()
