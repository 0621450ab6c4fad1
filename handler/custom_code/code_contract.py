"""A request to the owner's code and what it answered, free of HTTP's machinery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from handler.schemas.reply import encode


@dataclass(frozen=True, slots=True)
class CodeRequest:
    """:param headers: as they came.
    :param content_type: the media type alone, without parameters.
    :param accept: the header's value; empty without one.
    """

    body: bytes
    headers: Mapping[str, str]
    content_type: str
    accept: str
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class CodeReply:
    """:param body: all of it, or pieces to send as they are made; closing the iterator ends the code behind it."""

    body: bytes | Iterator[bytes]
    content_type: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class CustomCode(Protocol):
    """The owner's code, loaded. Called from many threads at once."""

    def invoke(self, request: CodeRequest) -> CodeReply | None:
        """The answer; None: the code leaves this request to the endpoint.

        :raises EndpointError: as the code says, or 500 with the exception's type.
        """
        ...


def piece(item: object) -> bytes:
    """A generator's item: text and bytes as they are, anything else as a line of JSON."""
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    return encode(item) + b"\n"
