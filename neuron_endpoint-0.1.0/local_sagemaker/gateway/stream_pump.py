"""Forwards all streams from containers to clients in one thread.

A thread per stream would wake for every token, and the threads would mostly wait for each other. Here one `epoll`
reports bytes of every container, the disconnect of every client, and every client that can receive more.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable

from local_sagemaker.gateway.container_connection import (
    ClientGone,
    ConnectionBroken,
    ContainerConnection,
    TimedOut,
    UpstreamError,
)
from local_sagemaker.gateway.idle_connections import IdleConnections

LOOK_AT_DEADLINES_EVERY = 0.25
FLAGS = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
Encode = Callable[[bytes], bytes]


class Stream:
    """One reply that is being forwarded.

    :ivar done: nothing more has to be forwarded.
    :ivar ended: only its worker's thread still uses its sockets.
    """

    def __init__(self, connection: ContainerConnection, client: socket.socket, encode: Encode) -> None:
        self.connection = connection
        self.client = client
        self.encode = encode
        self.backlog = b""
        self.done = False
        self.ended = threading.Event()
        self.failure: UpstreamError | None = None
        self.fault: Exception | None = None


class Pump:
    """Forwards streams. Its thread starts with the first stream, because a gateway is created before its server forks.

    :ivar idle: connections to containers between two streams.

    ``_lock`` guards the streams and their registration.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epoll: select.epoll | None = None
        self._streams: dict[int, Stream] = {}
        self.idle = IdleConnections()

    def carry(self, connection: ContainerConnection, client: socket.socket, encode: Encode) -> None:
        """Forwards a reply and waits until all of it is sent. The client already has the head of the response.

        :param encode: encodes one chunk of the container for the client.
        :raises UpstreamError: as `ContainerConnection.parts` does.
        """
        stream = Stream(connection, client, encode)
        self._pass(stream)  # Sends what arrived together with the head.
        if not stream.done:
            self._add(stream)
            stream.ended.wait()
        if stream.fault is not None:
            raise stream.fault
        if stream.failure is not None:
            raise stream.failure

    def _add(self, stream: Stream) -> None:
        with self._lock:  # Without the lock the stream could end between the two registrations.
            if self._epoll is None:
                self._epoll = select.epoll()
                threading.Thread(target=self._run, args=(self._epoll,), daemon=True, name="pump").start()
            client, container = stream.client.fileno(), stream.connection.fileno()
            self._streams[client] = self._streams[container] = stream
            self._epoll.register(client, select.EPOLLRDHUP | (select.EPOLLOUT if stream.backlog else 0))
            self._epoll.register(container, 0 if stream.backlog else select.EPOLLIN)

    def _run(self, epoll: select.epoll) -> None:
        look_at = 0.0
        while True:
            ready = epoll.poll(LOOK_AT_DEADLINES_EVERY)
            with self._lock:
                for descriptor, events in ready:
                    if (stream := self._streams.get(descriptor)) is not None:
                        self._serve(epoll, stream, descriptor, events)
                if (now := time.monotonic()) > look_at:
                    look_at = now + LOOK_AT_DEADLINES_EVERY
                    self.idle.sweep()
                    self._end_the_late(epoll)

    def _end_the_late(self, epoll: select.epoll) -> None:
        for stream in set(self._streams.values()):
            if stream.connection.is_late():
                stream.failure = TimedOut()
                self._end(epoll, stream)

    def _serve(self, epoll: select.epoll, stream: Stream, descriptor: int, events: int) -> None:
        try:
            self._move(epoll, stream, descriptor, events)
        except Exception as error:
            stream.fault = error
            stream.done = True
        if stream.done:
            self._end(epoll, stream)

    def _move(self, epoll: select.epoll, stream: Stream, descriptor: int, events: int) -> None:
        had_backlog = bool(stream.backlog)
        if descriptor == stream.connection.fileno():
            stream.connection.receive()
            self._pass(stream)
        elif events & (select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR):
            stream.failure = ClientGone()
            stream.done = True
        else:
            self._flush(stream)
            if not stream.backlog:
                self._pass(stream)
        if not stream.done and bool(stream.backlog) is not had_backlog:
            # While a client is slow, its container is not read.
            waiting = select.EPOLLOUT if stream.backlog else 0
            epoll.modify(stream.client.fileno(), select.EPOLLRDHUP | waiting)
            epoll.modify(stream.connection.fileno(), 0 if stream.backlog else select.EPOLLIN)

    def _pass(self, stream: Stream) -> None:
        """Forwards what has arrived. The stream is done if that was the end."""
        reply = stream.connection.reply
        if arrived := reply.take():
            encoded = b"".join(map(stream.encode, arrived))
            stream.backlog = b"%x\r\n%b\r\n" % (len(encoded), encoded)
            self._flush(stream)
        if not stream.backlog and not stream.done and (reply.complete or reply.error):
            stream.failure = None if reply.complete else ConnectionBroken(reply.error)
            stream.done = True

    def _flush(self, stream: Stream) -> None:
        try:
            sent = stream.client.send(stream.backlog, FLAGS)
        except BlockingIOError:
            return
        except OSError:
            stream.failure = ClientGone()
            stream.backlog = b""
            stream.done = True
            return
        stream.backlog = stream.backlog[sent:]

    def _end(self, epoll: select.epoll, stream: Stream) -> None:
        for descriptor in (stream.client.fileno(), stream.connection.fileno()):
            if self._streams.pop(descriptor, None) is not None:
                epoll.unregister(descriptor)
        stream.ended.set()
