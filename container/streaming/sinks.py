"""The sinks of the HTTP side: each turns the engine's tokens into one kind of reply.

All methods except the constructors run on the engine's loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import ClassVar

from container.connection.socket_writer import SocketWriter
from handler.engine.generation.generation import StopReason
from handler.errors import EndpointError
from handler.schemas.reply import SSE, Reply, RunningCall

Output = tuple[str, Sequence[int], str | None, StopReason]


@dataclass(slots=True, eq=False, repr=False)
class BufferedSink:
    """Collects the whole text of a reply.

    :ivar release: called once, when the text is complete or the call has failed. Set before the call begins.
    :ivar left_reason: how the client left before the end.
    """

    first_token: ClassVar[float | None] = None
    last_token: ClassVar[float | None] = None
    reply: Reply
    output: Output | None = None
    error: EndpointError | None = None
    left_reason: str | None = None
    running: RunningCall | None = None
    release: Callable[[], None] = field(init=False)

    @property
    def finish(self) -> str | None:
        return None if self.output is None else self.output[2]

    @property
    def tokens(self) -> int | None:
        return None if self.output is None else len(self.output[1])

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        self.output = (text, token_ids, finish_reason, stop_reason)
        self.release()

    def fail(self, error: EndpointError) -> None:
        self.error = error
        self.release()

    def client_left(self, reason: str) -> None:
        self.left_reason = reason
        if self.running is not None:
            self.running.cancel()

    def body(self) -> bytes:
        """The reply's bytes."""
        assert self.output is not None, "a call ends with output or with an error"
        return self.reply.whole(*self.output)


@dataclass(slots=True, eq=False, repr=False)
class _Stream:
    """The part that all streams share: each step's bytes, with the reply's opening in front of the first ones.

    :ivar tokens: output tokens so far.
    :ivar first_token, last_token: monotonic seconds; `last_token` is set at the end.
    """

    reply: Reply
    tokens: int = 0
    first_token: float | None = None
    last_token: float | None = None
    finish: str | None = None
    _opened: bool = False

    def event(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        self.tokens += len(token_ids)
        event = self.reply.event(text, token_ids, finish_reason, stop_reason)
        if self.first_token is None or finish_reason is not None:
            self.last_token = time.monotonic()
            self.first_token = self.first_token or self.last_token
            self.finish = finish_reason
        if not self._opened and (event or finish_reason is not None):
            self._opened = True
            event = self.reply.opening() + event
        return event


@dataclass(slots=True, eq=False, repr=False)
class StreamingSink(_Stream):
    """Writes each step to the connection at once.

    :ivar writer: writes to the connection, and releases it at the end. Set before the call begins.
    :ivar whole: the reply is complete, and the client was still connected at its end.
    :ivar left_reason: how the client left before the end.
    """

    writer: SocketWriter = field(init=False)
    running: RunningCall | None = None
    error: EndpointError | None = None
    whole: bool = False
    left_reason: str | None = None

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        if self._opened and finish_reason is None:
            self.tokens += len(token_ids)
            self.writer.write(self.reply.event(text, token_ids, None, None))
            return
        event = self.event(text, token_ids, finish_reason, stop_reason)
        if finish_reason is None:
            self.writer.write(*one_by_one(event, self.reply))
            return
        self.whole = self.writer.open
        self.writer.finish(*one_by_one(event + self.reply.closing(), self.reply))

    def fail(self, error: EndpointError) -> None:
        self.error = error
        if self.writer.started:
            self.writer.write(self.reply.broken(error))
        self.writer.abandon()

    def client_left(self, reason: str) -> None:
        self.whole = False
        self.left_reason = reason
        if self.running is not None:
            self.running.cancel()


def one_by_one(data: bytes, reply: Reply) -> list[bytes]:
    """Splits bytes into single events, so that each event becomes a chunk, and a payload part, of its own.

    litellm expects one event in each payload part (llms/sagemaker/common_utils.py, 1.83). After a part with two events
    it loses the rest of the stream. The first step and the last step of a stream have several events.
    """
    mark = b"\n\n" if reply.stream_content_type.startswith(SSE) else b"\n"
    *events, rest = data.split(mark)
    return [event + mark for event in events] + ([rest] if rest else [])


@dataclass(slots=True, eq=False, repr=False)
class CollectingSink(BufferedSink):
    """Collects a stream's events into one body, which is sent with its length. An error has its own status."""

    stream: _Stream = field(init=False)
    _events: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stream = _Stream(self.reply)

    @property
    def finish(self) -> str | None:
        return self.stream.finish

    @property
    def tokens(self) -> int | None:
        return self.stream.tokens if self.error is None else None

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        self._events.append(self.stream.event(text, token_ids, finish_reason, stop_reason))
        if finish_reason is not None:
            self._events.append(self.reply.closing())
            self.release()

    def body(self) -> bytes:
        return b"".join(self._events)


@dataclass(slots=True, eq=False, repr=False)
class QueueSink(_Stream):
    """Queues the bytes for a waiting thread, for servers that give no access to the socket. None marks the end.

    :ivar error, left_reason: set by the thread, when it has read the error or was closed early.
    """

    events: SimpleQueue[bytes | EndpointError | None] = field(default_factory=SimpleQueue)
    error: EndpointError | None = None
    left_reason: str | None = None

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        event = self.event(text, token_ids, finish_reason, stop_reason)
        if event:
            self.events.put(event)
        if finish_reason is not None:
            self.events.put(self.reply.closing())
            self.events.put(None)

    def fail(self, error: EndpointError) -> None:
        self.events.put(error)
        self.events.put(None)
