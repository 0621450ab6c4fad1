"""Closes connections so that a client that is still sending can read its reply.

Closing a socket that holds unread bytes makes the kernel send a reset. Most clients then never read the reply that they
have received. So only the sending side is closed. What the client still sends is read and discarded until the client
closes its side, sends nothing for `SILENCE`, or reaches `SECONDS` or `BYTES`. One thread does this for all
connections, so a client that goes on sending holds no thread of the pool and no admission.
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

# gunicorn's lingering close has limits of 2 s and 64 KiB (gunicorn/util.py, close_graceful; 27), less than one image.
SECONDS = 30.0
SILENCE = 2.0
BYTES = 128 * 1024 * 1024
TICK = 0.1
READ = 1 << 18
# struct tcp_info's first byte (linux/tcp.h, net/tcp_states.h).
ESTABLISHED = 1


@dataclass(slots=True, eq=False)
class _Closing:
    """A connection that is being closed.

    :ivar deadline: monotonic seconds after which it is closed.
    :ivar silence_deadline: the same; extended with every byte that arrives.
    :ivar remaining: bytes that the client may still send.
    """

    connection: socket.socket
    closed: Callable[[], None]
    deadline: float
    silence_deadline: float
    remaining: int


class LingeringClose:
    """Closes connections in one thread, which starts with the first connection.

    Its own file descriptors are opened when it is made: the first connection may come when none are left.
    """

    def __init__(self) -> None:
        self._new: SimpleQueue[tuple[socket.socket, Callable[[], None]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = False
        self._selector = selectors.DefaultSelector()
        self._wake, self._wake_reader = socket.socketpair()
        self._wake.setblocking(False)
        self._wake_reader.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._closing: set[_Closing] = set()
        self._process_deadline = float("inf")

    def close(self, connection: socket.socket, closed: Callable[[], None]) -> None:
        """Closes a connection. Returns at once.

        :param closed: called in another thread when the connection is closed.
        """
        self._new.put((connection, closed))
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="lingering", daemon=True).start()
        try:
            self._wake.send(b"\0")
        except BlockingIOError:
            return  # enough wake-ups are pending

    def hurry(self) -> None:
        """Ends every close within `SILENCE` from now: the process is about to end."""
        self._process_deadline = time.monotonic() + SILENCE

    def _run(self) -> None:
        selector, wake_reader = self._selector, self._wake_reader
        buffer = bytearray(READ)
        swept = 0.0
        while True:
            for key, _ in selector.select(TICK if self._closing else None):
                if key.fileobj is wake_reader:
                    wake_reader.recv_into(buffer)
                    while not self._new.empty():
                        self._begin(*self._new.get(), selector)
                else:
                    self._read(key.data, buffer, selector)
            now = time.monotonic()
            if now - swept >= TICK:
                swept = now
                for closing in [
                    closing
                    for closing in self._closing
                    if now > min(closing.deadline, closing.silence_deadline, self._process_deadline)
                ]:
                    self._end(closing, selector)

    def _begin(self, connection: socket.socket, closed: Callable[[], None], selector: selectors.BaseSelector) -> None:
        now = time.monotonic()
        closing = _Closing(connection, closed, now + SECONDS, now + SILENCE, BYTES)
        self._closing.add(closing)
        try:
            connection.setblocking(False)
            if _reading_was_ended(connection):
                return  # if the sending side were closed as well, Linux would send a reset
            connection.shutdown(socket.SHUT_WR)
            selector.register(connection, selectors.EVENT_READ, closing)
        except (OSError, ValueError, KeyError):  # already closed, or reset
            self._end(closing, selector)

    def _read(self, closing: _Closing, buffer: bytearray, selector: selectors.BaseSelector) -> None:
        try:
            count = closing.connection.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        closing.remaining -= count
        closing.silence_deadline = time.monotonic() + SILENCE
        if count == 0 or closing.remaining <= 0:
            self._end(closing, selector)

    def _end(self, closing: _Closing, selector: selectors.BaseSelector) -> None:
        self._closing.discard(closing)
        try:
            selector.unregister(closing.connection)
        except (KeyError, ValueError):
            pass  # it was never registered
        closing.connection.close()
        closing.closed()


def _reading_was_ended(connection: socket.socket) -> bool:
    """Whether this server ended the reading for being late (`read_timeouts`). The client has not closed its side."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0)) and connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED
