"""The interface of a reply, which turns tokens into bytes, and of a call, which is a parsed request with its reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import msgspec

from handler.engine.engine import Engine
from handler.engine.generation.generation import Generation, Sink, StopReason
from handler.errors import EndpointError

encode = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n\n"
# The media types of streams.
SSE = "text/event-stream"
JSON_LINES = "application/jsonlines"
# Media types in use for JSON Lines. The first is SageMaker's.
LINE_TYPES = frozenset((JSON_LINES, "application/x-jsonlines", "application/jsonl", "application/x-ndjson"))


class Reply(Protocol):
    """The reply to one request, as one document or as a stream of events. Not shared between requests.

    :cvar of_message: it is one of Anthropic's API, and so is an error in its place.
    """

    __slots__ = ()
    of_message: ClassVar[bool] = False
    content_type: ClassVar[str] = "application/json"
    stream_content_type: ClassVar[str] = f"{SSE}; charset=utf-8"

    def opening(self) -> bytes:
        """The beginning of a stream. It is sent together with the first token."""
        return b""

    def event(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        """The bytes that a step of the engine adds to the stream. May be empty."""
        ...

    def closing(self) -> bytes:
        """The end of a stream that succeeded."""
        return b""

    def broken(self, error: EndpointError) -> bytes:
        """The last event of a stream that failed. It is well-formed, and no end mark follows."""
        return event_of(error.document())

    def whole(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        """The document that answers a request without a stream."""
        ...


class RunningCall(Protocol):
    """A request to the engine. Every method runs on the engine's loop."""

    def begin(self, seconds: float | None = None, late: EndpointError | None = None) -> None:
        """Starts the request.

        :param seconds: time limit. A request that has not ended by then is ended with the error `late`.
        """
        ...

    def end(self, error: EndpointError) -> None:
        """Ends the request with an error, and frees its slots."""
        ...

    def cancel(self) -> None: ...


class AnyCall(Protocol):
    """A parsed request, of any schema and path."""

    @property
    def reply(self) -> Reply: ...

    @property
    def stream(self) -> bool: ...

    def request(self, engine: Engine, sink: Sink) -> RunningCall:
        """Makes the request to the engine. It starts when its `begin` is called.

        :raises ClientError: the engine rejects the request.
        """
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the plain path: one prompt, and one answer of plain text."""

    generation: Generation
    reply: Reply

    @property
    def stream(self) -> bool:
        return self.generation.stream

    def request(self, engine: Engine, sink: Sink) -> RunningCall:
        return engine.request(self.generation, sink)


def event_of(document: object) -> bytes:
    """One server-sent event."""
    return b"data: " + encode(document) + b"\n\n"


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int | None]:
    """OpenAI's usage object, as vLLM writes it."""
    return {**stream_usage(prompt_tokens, completion_tokens), "prompt_tokens_details": None}


def stream_usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int | None]:
    """As `usage`, in a stream, where vLLM omits fields that are not set."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }
