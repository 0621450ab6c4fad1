"""The connection of one invocation to the container.

It is a plain socket, not httpx or http.client. While a container is silent between two tokens, the thread must wait for
its next byte, for the client's disconnect and for the deadline, whichever is first. Here that is one ``select`` over
both sockets. A client library hides its socket behind buffers and would need another thread per stream. A connection
serves one invocation at a time, so closing it frees the container's slot. Only one whose reply was complete is reused
(`idle_connections`).
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType

import h11

from local_sagemaker.gateway.gateway_settings import ContainerAddress
from local_sagemaker.gateway.http_reply import ReplyHead, ReplyReader
from local_sagemaker.gateway.idle_connections import IdleConnections

AT_ONCE = 64 * 1024


class UpstreamError(Exception):
    """An invocation failed. The gateway translates this into SageMaker's error."""


class Unreachable(UpstreamError):
    """No connection was made."""


class TimedOut(UpstreamError):
    """The deadline passed."""


class ConnectionBroken(UpstreamError):
    """The container closed its connection, or sent something other than HTTP, before its reply was complete."""


class ClientGone(UpstreamError):
    """The client has disconnected."""


@dataclass(frozen=True, slots=True)
class InvocationDeadline:
    at: float

    @classmethod
    def after(cls, seconds: float) -> InvocationDeadline:
        return cls(time.monotonic() + seconds)

    def left(self) -> float:
        seconds = self.at - time.monotonic()
        if seconds <= 0:
            raise TimedOut
        return seconds


class ContainerConnection:
    """A connection to a container. ``client`` is the client's socket, watched for a disconnect."""

    def __init__(
        self,
        address: ContainerAddress,
        connect_seconds: float,
        deadline: InvocationDeadline,
        client: socket.socket | None,
        idle: IdleConnections | None = None,
    ) -> None:
        """Opens a connection, or takes an idle one.

        :param idle: idle connections. This one is returned there if its reply was complete.
        """
        self._deadline = deadline
        self._client = client
        self.reply = ReplyReader()
        self._address = address
        self._idle = idle
        self._closed = False
        self._socket = (idle.take(address) if idle is not None else None) or _connected(address, connect_seconds)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        if client is not None:
            self._selector.register(client, selectors.EVENT_READ)

    def __enter__(self) -> ContainerConnection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._selector.close()
        if self._idle is not None and self.reply.keep_alive and not self.reply.error:
            self._idle.give(self._address, self._socket)
        else:
            self._socket.close()

    def post(self, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> ReplyHead:
        return self.send("POST", path, headers, body)

    def send(self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> ReplyHead:
        """Send a request and wait for the reply's head."""
        fixed = [("Host", str(self._address)), ("Content-Length", str(len(body)))]
        # h11 writes the head, because it rejects ambiguous headers. `ReplyReader` reads the reply.
        head = h11.Connection(h11.CLIENT).send(h11.Request(method=method, target=path, headers=[*fixed, *headers]))
        try:
            self._socket.settimeout(self._deadline.left())
            self._socket.sendall((head or b"") + body)
        except TimeoutError as error:
            raise TimedOut from error
        except OSError:
            pass  # A container may reject a body before it has read all of it. Its reply is read below.
        while self.reply.head is None:
            self._receive()
            if self.reply.error and self.reply.head is None:
                raise ConnectionBroken(self.reply.error)
        return self.reply.head

    def parts(self) -> Iterator[bytes]:
        """Yields the reply's body as it arrives, chunk by chunk if it is chunked."""
        while True:
            yield from self.reply.take()
            if self.reply.complete:
                return
            if self.reply.error:
                raise ConnectionBroken(self.reply.error)
            self._receive()

    def text(self) -> str:
        return b"".join(self.parts()).decode("utf-8", "replace")

    def _receive(self) -> None:
        while True:
            ready = {key.fileobj for key, _ in self._selector.select(self._deadline.left())}
            if self._client in ready and self._client_is_gone():
                raise ClientGone
            if self._socket in ready:
                break
        self.receive()

    def fileno(self) -> int:
        return self._socket.fileno()

    def is_late(self) -> bool:
        return time.monotonic() >= self._deadline.at

    def receive(self) -> None:
        """Reads what has arrived, without waiting."""
        try:
            self.reply.feed(self._socket.recv(AT_ONCE, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return
        except OSError as error:
            self.reply.error = f"the connection failed before the response was complete ({error.strerror})"

    def _client_is_gone(self) -> bool:
        assert self._client is not None
        try:
            if self._client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                # A pipelined request. Its bytes stay for the server, and a disconnect after them cannot be seen.
                self._selector.unregister(self._client)
                return False
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True


def _connected(address: ContainerAddress, seconds: float) -> socket.socket:
    """Connects to the container.

    :raises Unreachable: no connection was made.
    """
    try:
        made = socket.create_connection((address.host, address.port), seconds)
    except OSError as error:
        raise Unreachable(f"{address}: {error.strerror or error}") from error
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
