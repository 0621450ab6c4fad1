"""Frames the JSON documents of a stream: as server-sent events, or as lines (LMI's `application/jsonlines`).

And how much work a body and a reply are, in bytes: whoever serves a loop does what is much in a thread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from handler.engine.engine import Engine
from handler.engine.generation.generation import Sink, StopReason
from handler.errors import EndpointError
from handler.schemas.reply import DONE, JSON_LINES, AnyCall, Call, Reply, RunningCall

DATA: Final = b"data: "


def framed(call: AnyCall, kind: str) -> AnyCall:
    """The call, with its stream framed as the media type `kind`. Replies write server-sent events by default."""
    return WrappedCall(call, JsonLines(call.reply)) if kind == JSON_LINES and call.stream else call


@dataclass(frozen=True, slots=True)
class WrappedCall:
    """A call whose reply is translated to another form, lines or a message, or whose body has fields without an effect.

    :param ignored: these fields. The reply's header names them.
    """

    call: AnyCall
    reply: Reply
    ignored: tuple[str, ...] = ()

    @property
    def stream(self) -> bool:
        return self.call.stream

    def request(self, engine: Engine, sink: Sink) -> RunningCall:
        return self.call.request(engine, sink)


def unframed(call: AnyCall) -> AnyCall:
    """The original call, whose reply is not translated."""
    return unframed(call.call) if isinstance(call, WrappedCall) else call


def with_ignored(call: AnyCall, ignored: tuple[str, ...]) -> AnyCall:
    return WrappedCall(call, call.reply, ignored) if ignored else call


def ignored_fields(call: AnyCall) -> tuple[str, ...]:
    """The fields of a call's body that have no effect."""
    return (*call.ignored, *ignored_fields(call.call)) if isinstance(call, WrappedCall) else ()


class JsonLines(Reply):
    """A reply whose stream has one JSON document per line. Only the end of the HTTP body marks its end."""

    stream_content_type: ClassVar[str] = JSON_LINES
    __slots__ = ("_reply",)

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def opening(self) -> bytes:
        return lines(self._reply.opening())

    def event(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        return lines(self._reply.event(text, token_ids, finish_reason, stop_reason))

    def closing(self) -> bytes:
        return lines(self._reply.closing())

    def broken(self, error: EndpointError) -> bytes:
        return lines(self._reply.broken(error))

    def whole(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        return self._reply.whole(text, token_ids, finish_reason, stop_reason)


def lines(events: bytes) -> bytes:
    """Converts complete events to lines. JSON text contains no line end, so the bytes separate the events."""
    return events.removesuffix(DONE).replace(b"\n\ndata: ", b"\n").removeprefix(DATA).replace(b"\n\n", b"\n")


# The size of what takes long for another reason than its bytes.
LARGE: Final = math.inf


def body_size(body: bytes, engine: Engine) -> float:
    """A tokenizer that is not compiled takes long for any body."""
    return len(body) if engine.prompts.compiled else LARGE


def reply_size(call: AnyCall) -> float:
    """Plain text is small. Log probabilities and several sequences are not."""
    inner = unframed(call)
    return 0 if isinstance(inner, Call) and inner.generation.scores is None else LARGE
