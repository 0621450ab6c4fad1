"""The connection of one invocation to the container, with one time limit for all of it.

It is http.client: its replies come chunk by chunk, and a connection serves one invocation, so closing it frees the
container's slot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from types import TracebackType

from local_sagemaker.hosting.instances.host_settings import ContainerAddress
from local_sagemaker.hosting.instances.timed_connection import connect

AT_ONCE = 64 * 1024
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # a client would get none of a reply with such a header
INCOMPLETE = "the connection closed before the response was complete, or sent no valid HTTP"


@dataclass(frozen=True, slots=True)
class RuntimeLimits:
    """SageMaker's own limits. Lower them to see a time-out without the wait.

    The stream's time and the body's size are third parties' figures. The API's model has 6,291,456 bytes.
    """

    regular_seconds: float = 60.0
    stream_seconds: float = 480.0
    connect_seconds: float = 2.0
    body_bytes: int = 25 * 1024 * 1024


class UpstreamError(Exception):
    """An invocation failed. The gateway translates this into SageMaker's error."""


class Unreachable(UpstreamError):
    """No connection was made."""


class TimedOut(UpstreamError):
    """The deadline passed."""


class ConnectionBroken(UpstreamError):
    """The container closed its connection, or sent something other than HTTP, before its reply was complete."""


class ContainerConnection:
    """A connection to a container.

    :param seconds: the time limit of the invocation.
    :raises Unreachable: no connection was made.
    """

    def __init__(self, address: ContainerAddress, connect_seconds: float, seconds: float) -> None:
        try:
            self._http = connect(address, connect_seconds, seconds)
        except OSError as error:
            raise Unreachable(f"{address}: {error.strerror or error}") from error
        self._reply: HTTPResponse | None = None

    def __enter__(self) -> ContainerConnection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._reply is not None:
            self._reply.close()
        self._http.close()

    def send(self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> HTTPResponse:
        """Sends a request and waits for the reply's head."""
        self._http.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (("Content-Length", str(len(body))), *headers):
            self._http.putheader(name, value)
        with self._translated():
            try:
                self._http.endheaders(body)
            except ConnectionError:
                pass  # A container may reject a body before it has read all of it. Its reply is read below.
        with self._translated():
            self._reply = self._http.getresponse()
        if any(map(CONTROL.search, self._reply.headers.values())):
            raise ConnectionBroken(INCOMPLETE)
        return self._reply

    def parts(self) -> Iterator[bytes]:
        """Yields the reply's body as it arrives, chunk by chunk if it is chunked."""
        assert self._reply is not None
        while True:
            with self._translated():
                part = self._reply.read1(AT_ONCE)
            if not part:
                break
            yield part
        if self._reply.length:
            raise ConnectionBroken(INCOMPLETE)

    def text(self) -> str:
        return b"".join(self.parts()).decode("utf-8", "replace")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translates the errors of a use of the socket.

        :raises UpstreamError: it fails.
        """
        try:
            yield
        except TimeoutError as error:
            raise TimedOut from error
        except (OSError, HTTPException) as error:
            raise ConnectionBroken(INCOMPLETE) from error
