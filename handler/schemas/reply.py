"""How tokens become bytes: what every schema's reply can do, and a call that pairs a reply with its generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import msgspec

from handler.engine.engine import Engine
from handler.engine.generation.generation import Generation, Sink
from handler.errors import EndpointError

encode = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n\n"


class Reply(Protocol):
    """One request's reply, whole or as a stream of events. Not shared between requests."""

    content_type: ClassVar[str]
    stream_content_type: ClassVar[str]

    def opening(self) -> bytes:
        """What a stream begins with, sent along with the first token."""
        ...

    def event(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> bytes:
        """What a step of the engine adds to the stream; may be empty."""
        ...

    def closing(self) -> bytes:
        """What a stream that succeeded ends with."""
        ...

    def broken(self, error: EndpointError) -> bytes:
        """The last event of a stream that failed: well-formed, and without the end mark that means success."""
        ...

    def whole(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> bytes:
        """The reply of a request that does not stream."""
        ...


class RunningCall(Protocol):
    """A request that is ready to begin. All of it happens on the engine's loop."""

    def begin(self, seconds: float | None = None, late: EndpointError | None = None) -> None:
        """:param seconds: from now; what has not ended by then is, with the error `late`."""
        ...

    def fail(self, error: EndpointError) -> None: ...

    def cancel(self) -> None: ...


class AnyCall(Protocol):
    """What a body asks for and how it is to be answered, by either path."""

    @property
    def reply(self) -> Reply: ...

    @property
    def stream(self) -> bool: ...

    def request(self, engine: Engine, sink: Sink) -> RunningCall:
        """:raises ClientError: the engine refuses it."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the short path: one prompt, one answer of plain text."""

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


def error_event(error: EndpointError) -> bytes:
    return event_of(error.document())


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int | None]:
    """OpenAI's usage object, as vLLM writes it."""
    return {**stream_usage(prompt_tokens, completion_tokens), "prompt_tokens_details": None}


def stream_usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int | None]:
    """The same in a stream, where vLLM leaves out what is not set."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }
