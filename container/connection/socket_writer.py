"""Writes a reply's bytes to its socket from the engine's loop, without blocking the loop.

A client that reads fast enough gets each event in one system call. For a slower client the bytes are buffered, up to a
limit in size and in time. Beyond either limit the client is disconnected, so that it holds neither memory nor a slot.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from container.connection.half_close import HalfClose

MAX_BACKLOG = 4 * 1024 * 1024
MAX_SILENCE = 60.0
CLIENT_CLOSED = "the client closed the connection"
FLAGS = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class SocketWriter:
    """Writes a chunked or plain body to one socket. Every method is called on the loop.

    :param head: status line and headers, sent with the first bytes.
    :param gone: called once, with the reason, when the client has left or is disconnected.
    :param released: called once, at the end: the loop no longer uses the socket.
    :ivar open: the client can still be written to.
    :ivar sent: bytes of the body.
    """

    __slots__ = (
        "_backlog",
        "_chunked",
        "_closing",
        "_fd",
        "_gone",
        "_half_close",
        "_head",
        "_loop",
        "_released",
        "_socket",
        "_timer",
        "_watched",
        "open",
        "sent",
    )

    def __init__(
        self,
        connection: socket.socket,
        loop: asyncio.AbstractEventLoop,
        head: bytes,
        chunked: bool,
        gone: Callable[[str], None],
        released: Callable[[], None],
    ) -> None:
        self._socket = connection
        self._fd = connection.fileno()
        self._loop = loop
        self._head = head
        self._chunked = chunked
        self._gone = gone
        self._backlog = bytearray()
        self._released: Callable[[], None] | None = released
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._watched = False
        self._half_close: HalfClose | None = None
        self.open = True
        self.sent = 0

    @property
    def started(self) -> bool:
        """Whether the status line was sent: from then on the status cannot change."""
        return not self._head

    def watch(self) -> None:
        """Watches for a client that closes its end before the reply is complete."""
        self._watched = True
        self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        try:
            peeked = self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            self.client_left(CLIENT_CLOSED)
            return
        self._loop.remove_reader(self._fd)
        if not peeked:  # else it is the next request, sent early; it is read later
            self.half_close()

    def half_close(self) -> None:
        """Call when the client's bytes have ended. It may wait for the reply all the same, unless it reads already."""
        if self.sent:
            self._left()
        elif self._half_close is None and self.open:
            self._half_close = HalfClose(self._socket, self._loop, lambda: not self.sent, self._left)

    def _left(self) -> None:
        self.client_left(CLIENT_CLOSED)

    def write(self, *events: bytes) -> None:
        """Sends events in one system call, each as its own chunk. Buffers what the client does not accept yet."""
        data = self._framed(events)
        if not data:
            return
        if self._head:
            data = self._head + data
            self._head = b""
        if self._backlog:
            self._send(data)
            return
        try:
            accepted = self._socket.send(data, FLAGS)
        except OSError:
            self._send(data)
            return
        if accepted < len(data):
            self._buffer(data[accepted:])

    def finish(self, *events: bytes) -> None:
        """Sends the last events and the body's end mark. Releases the socket when the client has accepted all bytes."""
        data = self._framed(events)
        if self.open:
            self._send(self._head + data + (b"0\r\n\r\n" if self._chunked else b""))
            self._head = b""
        self.abandon()

    def _framed(self, events: Sequence[bytes]) -> bytes:
        data = b""
        for event in events if self.open else ():
            if event:
                self.sent += len(event)
                data += b"%x\r\n%b\r\n" % (len(event), event) if self._chunked else event
        return data

    def abandon(self) -> None:
        """Ends without the end mark. Releases the socket when the client has accepted all written bytes."""
        self._closing = True
        if not self._backlog:
            self._release()

    def _send(self, data: bytes) -> None:
        if self._backlog:
            self._backlog += data
            if len(self._backlog) > MAX_BACKLOG:
                self.client_left(f"the client is {len(self._backlog):,} bytes behind")
            return
        try:
            accepted = self._socket.send(data, FLAGS)
        except BlockingIOError:
            accepted = 0
        except OSError:
            self.client_left(CLIENT_CLOSED)
            return
        if accepted < len(data):
            self._buffer(data[accepted:])

    def _buffer(self, rest: bytes) -> None:
        self._backlog += rest
        self._loop.add_writer(self._fd, self._writable)
        self._timer = self._loop.call_later(MAX_SILENCE, self._stalled)

    def _writable(self) -> None:
        try:
            accepted = self._socket.send(self._backlog, FLAGS)
        except BlockingIOError:
            return
        except OSError:
            self.client_left(CLIENT_CLOSED)
            return
        del self._backlog[:accepted]
        self._stop_timer()
        if self._backlog:
            self._timer = self._loop.call_later(MAX_SILENCE, self._stalled)
            return
        self._loop.remove_writer(self._fd)
        if self._closing:
            self._release()

    def _stalled(self) -> None:
        self.client_left(f"the client accepted no data for {MAX_SILENCE:g} s")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def client_left(self, reason: str) -> None:
        """Ends the reply: the client has left, or is disconnected for being too slow."""
        if self.open:
            self.open = False
            self._gone(reason)
            self._release()

    def _release(self) -> None:
        released, self._released = self._released, None
        if released is None:
            return
        self._stop_timer()
        if self._half_close is not None:
            self._half_close.stop()
        if self._watched:
            self._loop.remove_reader(self._fd)
        if self._backlog:
            self._loop.remove_writer(self._fd)
            self._backlog.clear()
        released()
