"""One invocation's connection to the container.

h11 over a plain socket, rather than httpx or http.client: while a container is silent between two tokens,
the thread must wait for its next byte, for the client's hang-up and for the deadline, whichever is first.
That is one ``select`` over both sockets here; a client library hides its socket behind buffers and would
need a watching thread a stream. A connection serves one invocation, so that closing it is what frees the
container's slot, and no stale connection of a restarted container is ever reused.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType

import h11

from local_sagemaker.settings import ContainerAddress

AT_ONCE = 64 * 1024


class UpstreamError(Exception):
    """Why an invocation could not be carried through; the gateway says it in SageMaker's words."""


class Unreachable(UpstreamError):
    """No connection was made."""


class TimedOut(UpstreamError):
    """The deadline passed."""


class Broken(UpstreamError):
    """The container closed its connection, or sent no HTTP, before its reply was whole."""


class ClientGone(UpstreamError):
    """Nobody is there any more to hear the reply."""


@dataclass(frozen=True, slots=True)
class Deadline:
    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    def left(self) -> float:
        seconds = self.at - time.monotonic()
        if seconds <= 0:
            raise TimedOut
        return seconds


@dataclass(frozen=True, slots=True)
class Head:
    status: int
    headers: dict[str, str]

    def get(self, name: str) -> str | None:
        return self.headers.get(name.lower())


class ContainerConnection:
    """``client`` is the socket to watch for a hang-up; without one, only the deadline ends a wait."""

    def __init__(
        self,
        address: ContainerAddress,
        connect_seconds: float,
        deadline: Deadline,
        client: socket.socket | None,
    ) -> None:
        self._deadline = deadline
        self._client = client
        self._http = h11.Connection(h11.CLIENT)
        self._host = str(address)
        try:
            self._socket = socket.create_connection((address.host, address.port), connect_seconds)
        except OSError as error:
            raise Unreachable(f"{address}: {error.strerror or error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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

    def post(self, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> Head:
        return self.send("POST", path, headers, body)

    def send(self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> Head:
        """Send a request and wait for the reply's head."""
        fixed = [("Host", self._host), ("Content-Length", str(len(body)))]
        head = self._http.send(h11.Request(method=method, target=path, headers=[*fixed, *headers]))
        self._http.send(h11.Data(data=body))
        self._http.send(h11.EndOfMessage())
        try:
            self._socket.settimeout(self._deadline.left())
            self._socket.sendall((head or b"") + body)
        except TimeoutError as error:
            raise TimedOut from error
        except OSError:
            pass  # A container may refuse a body before it has read it all: what it said is read below.
        while not isinstance(event := self._next_event(), h11.Response):
            pass  # 1xx
        received = {name.decode(): value.decode("latin-1") for name, value in event.headers}
        return Head(event.status_code, received)

    def parts(self) -> Iterator[bytes]:
        """The reply's body: whatever has arrived together comes together, at once."""
        arrived = bytearray()
        while True:
            try:
                event = self._parsed_event()
            except Broken:
                if arrived:
                    yield bytes(arrived)
                raise
            if isinstance(event, h11.Data):
                arrived += event.data
                continue
            if arrived:
                yield bytes(arrived)
                arrived.clear()
            if isinstance(event, h11.EndOfMessage):
                return
            self._receive()

    def text(self) -> str:
        return b"".join(self.parts()).decode("utf-8", "replace")

    def _next_event(self) -> h11.Event:
        while (event := self._parsed_event()) is None:
            self._receive()
        return event

    def _parsed_event(self) -> h11.Event | None:
        """The next event of the bytes received so far, or None when they are used up."""
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            closed = self._http.trailing_data[1]
            reason = "the connection closed before the response was complete"
            raise Broken(reason if closed else f"no valid HTTP: {error}") from error
        return event if isinstance(event, h11.Event) else None

    def _receive(self) -> None:
        while True:
            ready = {key.fileobj for key, _ in self._selector.select(self._deadline.left())}
            if self._client in ready and self._client_is_gone():
                raise ClientGone
            if self._socket in ready:
                break
        try:
            self._http.receive_data(self._socket.recv(AT_ONCE))
        except OSError as error:
            reason = f"the connection failed before the response was complete ({error.strerror})"
            raise Broken(reason) from error

    def _client_is_gone(self) -> bool:
        assert self._client is not None
        try:
            if self._client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                # A pipelined request: its bytes stay for the server, and a hang-up behind them can't be seen.
                self._selector.unregister(self._client)
                return False
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True
