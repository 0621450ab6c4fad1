"""Closes connections so that a client that is still sending can read its reply.

A socket that is closed with bytes in it that nobody has read answers with a reset, and most clients then never look at
the reply they have got. So the sending side alone is closed, and what still comes is read and thrown away: until the
client closes its side, sends nothing for `SILENCE`, or has had `SECONDS` or `BYTES`. One thread does this for all
connections, so that a client that goes on sending holds no thread of the pool, and nobody's place.
"""

from __future__ import annotations

import select
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

# gunicorn's own way gives 2 s and 64 KiB (gunicorn/util.py, close_graceful; 27), less than one image.
SECONDS = 30.0
SILENCE = 2.0
BYTES = 128 * 1024 * 1024
TICK = 0.1
READ = 1 << 18
# struct tcp_info's first byte (linux/tcp.h, net/tcp_states.h).
ESTABLISHED = 1


@dataclass(slots=True, eq=False)
class _Closing:
    """A connection on its way out.

    :ivar until, silent: monotonic seconds after which it is closed; `silent` moves on with what comes.
    :ivar left: bytes that it may still send.
    """

    connection: socket.socket
    closed: Callable[[], None]
    until: float
    silent: float
    left: int


class LingeringClose:
    """The connections that are being closed. Its thread starts with the first of them.

    Its own file descriptors are opened at once: the first connection may come when no more are left.
    """

    def __init__(self) -> None:
        self._new: SimpleQueue[tuple[socket.socket, Callable[[], None]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = False
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._held: set[_Closing] = set()
        self._last = float("inf")

    def close(self, connection: socket.socket, closed: Callable[[], None]) -> None:
        """Never waits. :param closed: called once it is closed, in another thread."""
        self._new.put((connection, closed))
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="lingering", daemon=True).start()
        try:
            self._wake.send(b"\0")
        except BlockingIOError:
            return  # it has been woken often enough

    def hurry(self) -> None:
        """The process is about to end: from now on nobody has longer than `SILENCE`."""
        self._last = time.monotonic() + SILENCE

    def _run(self) -> None:
        selector, woken = self._selector, self._woken
        buffer = bytearray(READ)
        looked = 0.0
        while True:
            for key, _ in selector.select(TICK if self._held else None):
                if key.fileobj is woken:
                    woken.recv_into(buffer)
                    while not self._new.empty():
                        self._begin(*self._new.get(), selector)
                else:
                    self._read(key.data, buffer, selector)
            now = time.monotonic()
            if now - looked >= TICK:
                looked = now
                for held in [held for held in self._held if now > min(held.until, held.silent, self._last)]:
                    self._end(held, selector)

    def _begin(self, connection: socket.socket, closed: Callable[[], None], selector: selectors.BaseSelector) -> None:
        now = time.monotonic()
        held = _Closing(connection, closed, now + SECONDS, now + SILENCE, BYTES)
        self._held.add(held)
        try:
            connection.setblocking(False)
            if _deaf(connection):
                return  # its reading was ended for being late: a side closed as well would have Linux reset it
            connection.shutdown(socket.SHUT_WR)
            selector.register(connection, selectors.EVENT_READ, held)
        except (OSError, ValueError, KeyError):  # it is closed already, or reset
            self._end(held, selector)

    def _read(self, held: _Closing, buffer: bytearray, selector: selectors.BaseSelector) -> None:
        try:
            count = held.connection.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        held.left -= count
        held.silent = time.monotonic() + SILENCE
        if count == 0 or held.left <= 0:
            self._end(held, selector)

    def _end(self, held: _Closing, selector: selectors.BaseSelector) -> None:
        self._held.discard(held)
        try:
            selector.unregister(held.connection)
        except (KeyError, ValueError):
            pass  # it never was
        held.connection.close()
        held.closed()


def _deaf(connection: socket.socket) -> bool:
    """Its reading was ended by us (`container.connection.read_timeouts`): the client has not closed its side."""
    look = select.poll()
    look.register(connection, select.POLLRDHUP)
    return bool(look.poll(0)) and connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED
