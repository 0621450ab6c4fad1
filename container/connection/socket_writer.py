"""Writes a reply's bytes to its socket from the engine's loop, without ever blocking it.

A client that keeps up gets each event in one system call as it is made. For one that does not, bytes are kept, up to
a bound in size and in time; past either it is cut off, so that a slow reader costs neither memory nor a slot.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

MAX_BACKLOG = 4 * 1024 * 1024
MAX_SILENCE = 60.0
FLAGS = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class SocketWriter:
    """Chunked (or plain) bytes to one socket. Every method is called on the loop.

    :param head: status line and headers, sent with the first bytes.
    :param gone: called once, with the reason, when the client has left or is cut off.
    :param released: called once, last: nothing of the loop touches the socket any more.
    """

    __slots__ = (
        "_backlog",
        "_chunked",
        "_closing",
        "_fd",
        "_gone",
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
        self.open = True
        self.sent = 0

    @property
    def started(self) -> bool:
        """The status line is out: the status can no longer change."""
        return not self._head

    def watch(self) -> None:
        """Notices a client that closes its end while its reply is being made."""
        self._watched = True
        self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        try:
            peeked = self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            peeked = b""
        if peeked:  # the next request, sent early: it waits its turn
            self._loop.remove_reader(self._fd)
        else:
            self.left("the client closed the connection")

    def write(self, *events: bytes) -> None:
        """Sends events, each as a chunk of its own, in one system call; keeps what the client does not take yet."""
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
            taken = self._socket.send(data, FLAGS)
        except OSError:
            self._send(data)
            return
        if taken < len(data):
            self._keep(data[taken:])

    def finish(self, *events: bytes) -> None:
        """The last events and the body's end mark; the socket is released when the client has taken all of it."""
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
        """Ends without the end mark; the socket is released when what was written has been taken."""
        self._closing = True
        if not self._backlog:
            self._release()

    def _send(self, data: bytes) -> None:
        if self._backlog:
            self._backlog += data
            if len(self._backlog) > MAX_BACKLOG:
                self.left(f"the client is {len(self._backlog):,} bytes behind")
            return
        try:
            taken = self._socket.send(data, FLAGS)
        except BlockingIOError:
            taken = 0
        except OSError:
            self.left("the client closed the connection")
            return
        if taken < len(data):
            self._keep(data[taken:])

    def _keep(self, rest: bytes) -> None:
        self._backlog += rest
        self._loop.add_writer(self._fd, self._writable)
        self._timer = self._loop.call_later(MAX_SILENCE, self._silent)

    def _writable(self) -> None:
        try:
            taken = self._socket.send(self._backlog, FLAGS)
        except BlockingIOError:
            return
        except OSError:
            self.left("the client closed the connection")
            return
        del self._backlog[:taken]
        self._stop_timer()
        if self._backlog:
            self._timer = self._loop.call_later(MAX_SILENCE, self._silent)
            return
        self._loop.remove_writer(self._fd)
        if self._closing:
            self._release()

    def _silent(self) -> None:
        self.left(f"the client took nothing for {MAX_SILENCE:g} s")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def left(self, reason: str) -> None:
        """The client has left, or is cut off."""
        if self.open:
            self.open = False
            self._gone(reason)
            self._release()

    def _release(self) -> None:
        released, self._released = self._released, None
        if released is None:
            return
        self._stop_timer()
        if self._watched:
            self._loop.remove_reader(self._fd)
        if self._backlog:
            self._loop.remove_writer(self._fd)
            self._backlog.clear()
        released()
