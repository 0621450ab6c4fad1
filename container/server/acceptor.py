"""Accepts all connections in a process of its own, and answers GET /ping there.

The serving process cannot always answer: imports and native code hold its interpreter, a start or an attack keeps it
busy, its threads and descriptors are limited. The acceptor waits for none of that. It reads each connection's first
head in its event loop. Any other request than GET /ping, with the rest of its connection, goes to the serving process.

A head is only looked at (MSG_PEEK), so that the connection is passed on as it came. /ping on a connection that was
passed on is answered by the serving process.
"""

from __future__ import annotations

import logging
import re
import select
import socket
import time
from collections import deque
from dataclasses import dataclass

from container.http.reply_head import reply_head
from container.http.request_parser import RequestHead, RequestParser
from container.server.connection_channel import ConnectionChannel
from container.server.descriptor_shortage import FIXES, ShortageLog, lowest_reserved
from container.server.ping_state import PASSED_ON, PingState
from handler.errors import EndpointError

logger = logging.getLogger(__name__)
HEAD_END = b"\r\n\r\n"
# What begins no request, as TLS, or ends a line of none: nobody waits for the end of such a head.
NO_HEAD = re.compile(rb"\A[^A-Z\r\n]|(?<!\r)\n")
# Bytes of a head that are looked at. A longer head is passed on. It has to fit the kernel's receive buffer.
MAX_HEAD = 32 * 1024
HEAD_SECONDS = 60.0
# Seconds that a connection is kept after a /ping, as gunicorn's `keepalive`.
KEEP_SECONDS = 75.0
# Requests that are answered of one connection at once. Who sends more is no health check, and is passed on.
MAX_AT_ONCE = 8
TICK = 1.0
ACCEPTS = 64
# Connections that are closed at a time when there are no descriptors, and the pause if there are none to close.
CLOSE_BATCH, PAUSE = 32, 0.05
EVENTS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
PING = b"GET /ping "
# A request with one of these is not plain.
UNUSUAL = frozenset(("CONTENT_LENGTH", "HTTP_UPGRADE"))
JSON, NO_BODY = ("Content-Type", "application/json"), ("Content-Type", "text/html; charset=utf-8")


@dataclass(slots=True, eq=False)
class _Client:
    """A connection.

    :ivar deadline: monotonic seconds after which it is closed.
    """

    connection: socket.socket
    deadline: float


class Acceptor:
    """The event loop of the acceptor's process.

    :param listener: listens on the endpoint's port, and does not block.
    """

    def __init__(self, listener: socket.socket, channel: ConnectionChannel, state: PingState) -> None:
        self._listener, self._channel, self._state = listener, channel, state
        self._log = ShortageLog(logger)
        # By file descriptor, in the order of their deadlines: no request yet; /ping was answered last.
        self._new: dict[int, _Client] = {}
        self._kept: dict[int, _Client] = {}
        self._queue: deque[socket.socket] = deque()
        self._epoll = select.epoll()
        self._capacity = lowest_reserved() - self._epoll.fileno()  # all descriptors below this one are in use
        self._epoll.register(listener, select.EPOLLIN)
        self._epoll.register(channel.acceptor_end, 0)

    def run(self) -> None:
        """Runs until the process ends."""
        while True:
            self.turn(TICK)

    def turn(self, timeout: float) -> None:
        """Waits for events, up to `timeout` seconds, and handles them."""
        for descriptor, events in self._epoll.poll(timeout):
            if descriptor == self._listener.fileno():
                self._accept()
            elif descriptor == self._channel.acceptor_end.fileno():
                self._send_queue()
            elif (client := self._new.get(descriptor) or self._kept.get(descriptor)) is not None:
                self._look(client, ended=bool(events & ENDED))
        now = time.monotonic()
        for group in (self._new, self._kept):
            while group and (first := next(iter(group.values()))).deadline <= now:
                self._close(first)

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in FIXES:
                    raise
                self._make_room(CLOSE_BATCH, error.errno)
                return
            if self._count() >= self._capacity:
                self._make_room(1, None)
            client = _Client(connection, time.monotonic() + HEAD_SECONDS)
            self._new[connection.fileno()] = client
            self._epoll.register(connection, EVENTS)
            self._look(client, ended=False)

    def _look(self, client: _Client, *, ended: bool) -> None:
        """Answers the requests that have arrived, passes the connection on, or waits for more.

        :param ended: the client sends nothing more.
        """
        connection, answered = client.connection, 0
        while True:
            try:
                data = connection.recv(MAX_HEAD, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            end = data.find(HEAD_END)
            waits = end < 0 and len(data) < MAX_HEAD and not NO_HEAD.search(data)
            if not data or (waits and ended):
                self._close(client)
            if not data or waits:
                return
            keep = ping_keeps_alive(data[: end + len(HEAD_END)]) if end >= 0 else None
            status, body = self._state.read()
            if keep is None or status == PASSED_ON or answered == MAX_AT_ONCE:
                self._pass_on(client)
                return
            answered += 1
            connection.recv(end + len(HEAD_END))
            if not self._answer(connection, status, body, keep) or not keep:
                self._close(client)
                return
            descriptor = connection.fileno()
            self._new.pop(descriptor, None)
            self._kept.pop(descriptor, None)
            self._kept[descriptor] = client
            client.deadline = time.monotonic() + KEEP_SECONDS

    def _answer(self, connection: socket.socket, status: int, body: bytes, keep: bool) -> bool:
        """Answers a /ping. False: the client has left, or does not read its replies."""
        headers = (JSON if body else NO_BODY, ("Content-Length", str(len(body))))
        reply = reply_head(status, headers, keep_alive=keep, chunked=False) + body
        try:
            return connection.send(reply, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) == len(reply)
        except OSError:
            return False

    def _pass_on(self, client: _Client) -> None:
        self._forget(client)
        self._queue.append(client.connection)
        if len(self._queue) == 1:
            self._send_queue()

    def _send_queue(self) -> None:
        """Sends connections until the serving process has yet to accept earlier ones."""
        while self._queue:
            try:
                self._channel.send(self._queue[0])
            except BlockingIOError:
                self._epoll.modify(self._channel.acceptor_end, select.EPOLLOUT)
                return
            self._queue.popleft().close()
        self._epoll.modify(self._channel.acceptor_end, 0)

    def _make_room(self, count: int, error: int | None) -> None:
        """Closes connections: the idlest of the largest group. So idle clients do not displace those that ask /ping."""
        self._log.write(error, self._count())
        for _ in range(count):
            group = self._new if len(self._new) >= len(self._kept) else self._kept
            if len(self._queue) > len(group):
                self._queue.popleft().close()
            elif group:
                self._close(next(iter(group.values())))
            else:
                time.sleep(PAUSE)
                return

    def _count(self) -> int:
        return len(self._new) + len(self._kept) + len(self._queue)

    def _forget(self, client: _Client) -> None:
        descriptor = client.connection.fileno()
        self._epoll.unregister(descriptor)
        self._new.pop(descriptor, None)
        self._kept.pop(descriptor, None)

    def _close(self, client: _Client) -> None:
        self._forget(client)
        client.connection.close()


class _Head:
    """Gets what a parser reads of a head. A request with a body is not complete."""

    def __init__(self) -> None:
        self.head: RequestHead | None = None
        self.complete = False

    def head_complete(self, head: RequestHead) -> None:
        self.head = head

    def body_arrived(self, piece: bytes) -> None: ...

    def request_complete(self) -> bool:
        self.complete = True
        return False

    def other_protocol(self, received: bytes) -> None: ...


def ping_keeps_alive(head: bytes) -> bool | None:
    """Whether the connection is kept after this request, if it is a plain GET /ping. None: it is another request.

    :param head: a head with the empty line at its end.
    """
    if not head.startswith(PING):
        return None
    received = _Head()
    try:
        RequestParser(received).feed(head)
    except EndpointError:
        return None
    if received.head is None or not received.complete or received.head.upgrades:
        return None
    environ = received.head.environ
    plain = environ["RAW_URI"] == "/ping" and not environ.keys() & UNUSUAL
    return received.head.keep_alive if plain else None
