"""Where the engine's tokens go on the HTTP side. Every method here but the constructors runs on the engine's loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from container.connection.socket_writer import SocketWriter
from handler.errors import EndpointError
from handler.schemas.reply import Reply, RunningCall

Output = tuple[str, Sequence[int], str | None, int | str | None]


class BufferedSink:
    """Takes the whole text.

    :ivar release: called once, when it is there or has failed; set before the request begins.
    """

    __slots__ = ("error", "gone", "output", "release", "reply", "ticket")

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.output: Output | None = None
        self.error: EndpointError | None = None
        self.gone = False
        self.ticket: RunningCall | None = None
        self.release: Callable[[], None]

    def push(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> None:
        self.output = (text, token_ids, finish_reason, stop_reason)
        self.release()

    def fail(self, error: EndpointError) -> None:
        self.error = error
        self.release()

    def left(self, reason: str) -> None:
        self.gone = True
        if self.ticket is not None:
            self.ticket.cancel()

    def body(self) -> bytes:
        """The reply's bytes."""
        assert self.output is not None, "an answer ends with output or with an error"
        return self.reply.whole(*self.output)


class _Stream:
    """What both kinds of stream share: a reply's bytes, its opening in front of the first of them.

    :ivar tokens: made so far.
    :ivar first_token, last_token: monotonic seconds; the last one's is set at the end.
    """

    __slots__ = ("_opened", "finish", "first_token", "last_token", "reply", "tokens")

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self._opened = False
        self.tokens = 0
        self.first_token: float | None = None
        self.last_token: float | None = None
        self.finish: str | None = None

    def event(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> bytes:
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


class StreamingSink(_Stream):
    """Turns each step into bytes on the connection, there and then.

    :ivar writer: set before the request begins; it tells when the connection is done with.
    :ivar whole: the reply ended as it should and the client took all of it.
    """

    __slots__ = ("error", "gone", "ticket", "whole", "writer")

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self.writer: SocketWriter
        self.ticket: RunningCall | None = None
        self.error: EndpointError | None = None
        self.whole = False
        self.gone: str | None = None

    def push(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> None:
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

    def left(self, reason: str) -> None:
        self.whole = False
        self.gone = reason
        if self.ticket is not None:
            self.ticket.cancel()


def one_by_one(data: bytes, reply: Reply) -> list[bytes]:
    """Each event by itself, so that it becomes a chunk, and a payload part, of its own.

    litellm takes a part for an event (llms/sagemaker/common_utils.py, 1.83) and loses the rest of a stream after a part
    that has two. What belongs together at a stream's beginning and end is therefore framed apart.
    """
    mark = b"\n\n" if reply.stream_content_type.startswith("text/event-stream") else b"\n"
    *events, rest = data.split(mark)
    return [event + mark for event in events] + ([rest] if rest else [])


class CollectingSink(BufferedSink):
    """A stream's events as one body: what is sent with its length, and with an error's own status if it fails."""

    __slots__ = ("_events", "stream")

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self.stream = _Stream(reply)
        self._events: list[bytes] = []

    def push(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> None:
        self._events.append(self.stream.event(text, token_ids, finish_reason, stop_reason))
        if finish_reason is not None:
            self._events.append(self.reply.closing())
            self.release()

    def body(self) -> bytes:
        return b"".join(self._events)


class QueueSink(_Stream):
    """Hands the bytes to a waiting thread: the way under servers that give no socket. None marks the end."""

    __slots__ = ("events",)

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self.events: SimpleQueue[bytes | EndpointError | None] = SimpleQueue()

    def push(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> None:
        event = self.event(text, token_ids, finish_reason, stop_reason)
        if event:
            self.events.put(event)
        if finish_reason is not None:
            self.events.put(self.reply.closing())
            self.events.put(None)

    def fail(self, error: EndpointError) -> None:
        self.events.put(error)
        self.events.put(None)
