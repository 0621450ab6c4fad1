"""A request to custom code and its reply, independent of the HTTP server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol

from handler.schemas.reply import encode

INVOCATIONS: Final = ("POST", "/invocations")
PING: Final = ("GET", "/ping")


@dataclass(frozen=True, slots=True)
class CodeRequest:
    """A request to custom code.

    :param headers: unchanged.
    :param content_type: the value of the Content-Type header, with its parameters. Empty if there is none.
    :param accept: the value of the Accept header. Empty if there is none.
    """

    body: bytes
    headers: Mapping[str, str]
    content_type: str
    accept: str
    request_id: str = ""
    method: str = INVOCATIONS[0]
    path: str = INVOCATIONS[1]
    query: str = ""


@dataclass(frozen=True, slots=True)
class CodeReply:
    """The reply of custom code.

    :param body: the whole body, or an iterator of pieces to send. Closing the iterator ends the code that makes them.
    :param repeated: headers whose names `headers` has already, such as a second Set-Cookie.
    """

    body: bytes | Iterator[bytes]
    content_type: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    repeated: Sequence[tuple[str, str]] = ()


class CustomCode(Protocol):
    """Loaded custom code. Called from many threads at the same time.

    :cvar may_decline: `invoke` may return None.
    :cvar manages_sessions: it opens, checks and closes sessions itself.
    """

    may_decline: ClassVar[bool]
    manages_sessions: ClassVar[bool]

    def answers(self, method: str, path: str) -> bool:
        """Whether requests of this method and path go to the code."""

    def invoke(self, request: CodeRequest) -> CodeReply | None:
        """The reply. None if the code leaves this request to the endpoint.

        :raises EndpointError: the error that the code raised, or a 500 with the type of its exception.
        """


def piece(item: object) -> bytes:
    """The bytes of a generator's item: text and bytes unchanged, anything else as a line of JSON."""
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    return encode(item) + b"\n"
