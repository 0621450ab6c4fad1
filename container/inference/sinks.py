"""The sinks: each turns the engine's tokens into one kind of reply. All methods run on the loop."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from container.http.exchange import Exchange
from handler.engine.generation.generation import StopReason
from handler.errors import EndpointError
from handler.schemas.reply import SSE, Reply, RunningCall

Output = tuple[str, Sequence[int], str | None, StopReason]


class Client(Protocol):
    """Who gets a reply.

    :ivar left: called once, with the reason, when the client has left.
    :ivar open: it has not.
    """

    left: Callable[[str], None] | None

    @property
    def open(self) -> bool: ...


@dataclass(slots=True, eq=False, repr=False)
class CallSink(ABC):
    """The part that all sinks share: the end of a call, and what its record reports.

    :ivar ended: done when the call has ended, in any way.
    :ivar left_reason: how the client left before the end.
    :ivar tokens: output tokens so far. None without a reply.
    :ivar first_token, last_token: monotonic seconds; of a stream only. `last_token` comes with the
        finish reason: a stream that ended early has none.
    """

    reply: Reply
    running: RunningCall | None = None
    error: EndpointError | None = None
    left_reason: str | None = None
    finish: str | None = None
    tokens: int | None = None
    first_token: float | None = None
    last_token: float | None = None
    ended: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @abstractmethod
    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        """A step of the engine. The last one has a finish reason."""

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def fail(self, error: EndpointError) -> None:
        self.error = error
        self.end()

    def client_left(self, reason: str) -> None:
        if not self.ended.done():
            self.left_reason = reason
            if self.running is not None:
                self.running.cancel()
            self.end()


@dataclass(slots=True, eq=False, repr=False)
class WholeSink(CallSink):
    """Collects the whole text of a reply."""

    output: Output | None = None

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        self.output = text, token_ids, finish_reason, stop_reason
        self.tokens, self.finish = len(token_ids), finish_reason
        self.end()

    def body(self) -> bytes:
        """The reply's bytes."""
        assert self.output is not None, "a call ends with output or with an error"
        return self.reply.whole(*self.output)


@dataclass(slots=True, eq=False, repr=False)
class StreamSink(CallSink):
    """The part that all streams share: each step's bytes, with the reply's opening in front of the first ones."""

    _opened: bool = False

    def event(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        self.tokens = (self.tokens or 0) + len(token_ids)
        event = self.reply.event(text, token_ids, finish_reason, stop_reason)
        if self.first_token is None or finish_reason is not None:
            now = time.monotonic()
            self.first_token = self.first_token or now
            self.last_token = None if finish_reason is None else now
            self.finish = finish_reason
        if not self._opened and (event or finish_reason is not None):
            self._opened = True
            event = self.reply.opening() + event
        return event


@dataclass(slots=True, eq=False, repr=False)
class EventSink(StreamSink):
    """Writes each step to the client at once.

    :ivar exchange: its reply has begun.
    :ivar last: the events that end it. They are sent once the call's end is in the request's record.
    """

    exchange: Exchange = field(kw_only=True)
    last: Sequence[bytes] = ()

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        if self._opened and finish_reason is None and len(token_ids) == 1:  # one event at most
            self.tokens = (self.tokens or 0) + 1
            self.exchange.write(self.reply.event(text, token_ids, None, None))
            return
        event = self.event(text, token_ids, finish_reason, stop_reason)
        if finish_reason is None:
            self.exchange.write(*one_by_one(event, self.reply))
            return
        self.last = one_by_one(event + self.reply.closing(), self.reply)
        self.end()

    def fail(self, error: EndpointError) -> None:
        if self.exchange.sent:
            self.exchange.write(self.reply.broken(error))
        # `super` of a class with slots would be that of the class before `dataclass` made this one.
        CallSink.fail(self, error)


def one_by_one(data: bytes, reply: Reply) -> list[bytes]:
    """Splits bytes into single events, so that each event becomes a chunk, and a payload part, of its own.

    litellm expects one event in each payload part (llms/sagemaker/common_utils.py, 1.83). After a part with two events
    it loses the rest of the stream. The first and the last step of a stream have several events, and so has a step of
    several tokens, by speculation, or one of vLLM's classes where a message's block ends and the next one begins.
    """
    mark = b"\n\n" if reply.stream_content_type.startswith(SSE) else b"\n"
    if data.count(mark) < 2:
        return [data] if data else []
    *events, rest = data.split(mark)
    return [event + mark for event in events] + ([rest] if rest else [])


@dataclass(slots=True, eq=False, repr=False)
class CollectingSink(StreamSink):
    """Collects a stream's events into one body, which is sent with its length. An error has its own status."""

    _events: list[bytes] = field(default_factory=list)

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        self._events.append(self.event(text, token_ids, finish_reason, stop_reason))
        if finish_reason is not None:
            self._events.append(self.reply.closing())
            self.end()

    def body(self) -> bytes:
        return b"".join(self._events)


@dataclass(slots=True, eq=False, repr=False)
class WebSocketSink(StreamSink):
    """Sends the stream that answers one message of a WebSocket: each JSON document is one frame.

    An error is sent by whoever waits for the end.
    """

    send: Callable[[str], None] = field(kw_only=True)

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        send_documents(self.event(text, token_ids, finish_reason, stop_reason), self.send)
        if finish_reason is not None:
            send_documents(self.reply.closing(), self.send)
            self.end()


def documents(data: bytes) -> list[str]:
    """The JSON documents in a reply's bytes, which are server-sent events, lines or one body."""
    parts = data.split(b"\n")
    if data.startswith((b"data:", b"event:")):
        parts = [part.removeprefix(b"data:") for part in parts if part.startswith(b"data:")]
    return [part.strip().decode() for part in parts if part.strip()]


def send_documents(data: bytes, send: Callable[[str], None]) -> None:
    """Sends each document as a frame."""
    for document in documents(data):
        send(document)
