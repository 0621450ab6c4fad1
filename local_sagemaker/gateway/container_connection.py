"""The connection of one invocation to the container.

It is a plain socket with h11, not httpx or http.client. While a container is silent between two tokens, the thread
must wait for its next byte, for the client's disconnect and for the deadline, whichever is first. Here that is one
``select`` over both sockets. A client library hides its socket behind buffers. A connection serves one invocation, so
closing it frees the container's slot.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType

import h11

from local_sagemaker.hosting.instances.host_settings import ContainerAddress

AT_ONCE = 64 * 1024
LARGEST_HEAD = 64 * 1024
CLOSED = "the connection closed before the response was complete"


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


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """The status and the headers of a reply, by lower-case name."""

    status: int
    headers: dict[str, str]

    def get(self, name: str) -> str | None:
        return self.headers.get(name.lower())


class ContainerConnection:
    """A connection to a container. ``client`` is the client's socket, watched for a disconnect."""

    def __init__(
        self,
        address: ContainerAddress,
        connect_seconds: float,
        deadline: InvocationDeadline,
        client: socket.socket | None,
    ) -> None:
        self._address = address
        self._deadline = deadline
        self._client = client
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=LARGEST_HEAD)
        self._failure = ""
        self._socket = _connected(address, connect_seconds)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        if client is not None:
            self._selector.register(client, selectors.EVENT_READ)

    def __enter__(self) -> ContainerConnection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._selector.close()
        self._socket.close()

    def post(self, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> ReplyHead:
        return self.send("POST", path, headers, body)

    def send(self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> ReplyHead:
        """Send a request and wait for the reply's head."""
        fixed = [("Host", str(self._address)), ("Content-Length", str(len(body)))]
        request = h11.Request(method=method, target=path, headers=[*fixed, *headers])
        parts = [self._http.send(event) or b"" for event in (request, h11.Data(data=body), h11.EndOfMessage())]
        try:
            self._socket.settimeout(self._deadline.left())
            self._socket.sendall(b"".join(parts))
        except TimeoutError as error:
            raise TimedOut from error
        except OSError:
            pass  # A container may reject a body before it has read all of it. Its reply is read below.
        while not isinstance(event := self._next(), h11.Response):
            pass  # a 1xx reply
        return ReplyHead(
            event.status_code, {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        )

    def parts(self) -> Iterator[bytes]:
        """Yields the reply's body as it arrives, chunk by chunk if it is chunked."""
        while isinstance(event := self._next(), h11.Data):
            yield bytes(event.data)

    def text(self) -> str:
        return b"".join(self.parts()).decode("utf-8", "replace")

    def _next(self) -> h11.Event:
        """Waits for the next part of the reply.

        :raises UpstreamError: it does not come.
        """
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(self._receive())
        except h11.RemoteProtocolError as error:
            raise ConnectionBroken(self._failure or f"no valid HTTP: {error}") from error
        if not isinstance(event, h11.Event) or isinstance(event, h11.ConnectionClosed):
            raise ConnectionBroken(self._failure or CLOSED)
        return event

    def _receive(self) -> bytes:
        while True:
            ready = {key.fileobj for key, _ in self._selector.select(self._deadline.left())}
            if self._client in ready and self._client_is_gone():
                raise ClientGone
            if self._socket in ready:
                break
        try:
            arrived = self._socket.recv(AT_ONCE)
        except OSError as error:
            self._failure = f"the connection failed before the response was complete ({error.strerror})"
            raise ConnectionBroken(self._failure) from error
        if not arrived:
            self._failure = CLOSED
        return arrived

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
