"""Answers a JSON Lines body: each line is a request, and the replies are in the order of the lines.

The lines run in the engine at the same time. A wrong line gets an error as its reply, and the other lines are not
affected. A failure of the engine ends the whole batch, so that the client tries again instead of storing errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from handler.engine.engine import Engine
from handler.engine.generation.generation import StopReason
from handler.errors import ClientError, EndpointError, InvalidBody, InvalidField
from handler.schemas.anthropic.message_reply import error_body
from handler.schemas.dispatch import Parse
from handler.schemas.framing import body_size, ignored_fields, reply_size
from handler.schemas.json_body import decode
from handler.schemas.reply import AnyCall, RunningCall

# Each line has a reply, an empty one too: 3 MiB of empty lines would be 519 MiB of replies.
MAX_LINES = 16_384
# Bytes of the replies to all lines together: a line may ask for 20 MB of log probabilities.
MAX_REPLY_BYTES = 256 << 20


def lines_of(body: bytes, *, bounded: bool) -> list[bytes]:
    """The lines of a body. The last line need not have a line end.

    Empty lines are kept, because batch transform joins output to input by order. It may send an empty line alone.

    :param bounded: anyone sends the body. A transform job's lines are the owner's, and no member of the job bounds how
        many SageMaker puts into a body.
    :raises InvalidBody: there are no lines, or more than MAX_LINES.
    """
    if bounded and body.count(b"\n") > MAX_LINES:
        raise InvalidBody(f"it has more than {MAX_LINES:,} lines", "fewer lines in each body")
    lines = body.split(b"\n")
    if not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InvalidBody("it has no lines")
    return lines


class RunSized(Protocol):
    """Calls a function whose time grows with the size of what it works on: in a thread, if that is large."""

    def __call__(self, size: float, function: Callable[..., Any], /, *arguments: object) -> Awaitable[Any]: ...


@dataclass(slots=True)
class Batch:
    """The lines of one body. Every method runs on the engine's loop.

    :param window: how many lines run in the engine at the same time.
    :param left: returns the seconds until the batch's deadline.
    :param late: the error for a line without a reply at the deadline.
    :param begin: begins a line's call.
    :param run_sized: calls a function, in a thread if the bytes that it works on are many.
    :ivar ignored: the fields of its lines that have no effect, in their order.
    """

    engine: Engine
    parse: Parse
    window: int
    left: Callable[[], float]
    late: EndpointError
    begin: Callable[[RunningCall], object]
    run_sized: RunSized
    ignored: dict[str, None] = field(default_factory=dict)
    _ended: asyncio.Queue[LineSink | None] = field(default_factory=asyncio.Queue)
    _running: dict[int, RunningCall] = field(default_factory=dict)
    _bytes: int = 0

    def leave(self, reason: str) -> None:
        """Ends the batch because the client has disconnected."""
        self._ended.put_nowait(None)

    async def run(self, lines: Sequence[bytes]) -> list[bytes] | None:
        """The replies to the lines, in order. None if the client disconnected before the end.

        :raises EndpointError: one that ends all lines.
        """
        replies = [b""] * len(lines)
        try:
            for index, line in enumerate(lines):
                while len(self._running) >= self.window:
                    if not await self._take(replies):
                        return None
                try:
                    await self._begin(index, line)
                except EndpointError as error:
                    replies[index] = _error(error)
                await asyncio.sleep(0)  # the tokens of others are sent between two lines
            while self._running:
                if not await self._take(replies):
                    return None
        finally:
            for request in self._running.values():
                request.cancel()
        return replies

    async def _begin(self, index: int, line: bytes) -> None:
        if not self.left():
            raise self.late
        if self._bytes > MAX_REPLY_BYTES:
            raise self._too_large()
        size = body_size(line, self.engine)
        sink, request, ignored = await self.run_sized(size, self._request, index, line)
        self.ignored.update(dict.fromkeys(ignored))
        self._running[sink.index] = request
        self.begin(request)

    def _request(self, index: int, line: bytes) -> tuple[LineSink, RunningCall, tuple[str, ...]]:
        call = self.parse(decode(line), self.engine)
        try:
            if call.stream:
                raise InvalidField("stream", "a line of a batch cannot be streamed: leave it out")
            sink = LineSink(index, call, self._ended.put_nowait)
            return sink, call.request(self.engine, sink), ignored_fields(call)
        except EndpointError as error:
            error.of_message = error.of_message or call.reply.of_message
            raise

    async def _take(self, replies: list[bytes]) -> bool:
        line = await self._ended.get()
        if line is None:
            return False
        del self._running[line.index]
        error = line.error
        if error is not None and error.ends_lines:
            raise error
        if error is None:
            reply: bytes = await self.run_sized(line.size, line.reply.whole, *line.output)
            self._bytes += len(reply)
            error = self._too_large() if self._bytes > MAX_REPLY_BYTES else None
        replies[line.index] = reply if error is None else _error(error, of_message=line.reply.of_message)
        return True

    def _too_large(self) -> EndpointError:
        problem = f"The replies to the lines of this body have more than {MAX_REPLY_BYTES >> 20} MiB together."
        return ClientError(f"{problem} Send fewer lines in each body, or ask for fewer log probabilities.")


def _error(error: EndpointError, *, of_message: bool = False) -> bytes:
    if error.ends_lines:
        raise error
    return error_body(error, of_message=of_message)


class LineSink:
    """The sink of one line.

    :param ended: called with this sink when the line has ended.
    :ivar size: how much work its reply is.
    """

    __slots__ = ("_ended", "error", "index", "output", "reply", "size")

    def __init__(self, index: int, call: AnyCall, ended: Callable[[LineSink], object]) -> None:
        self.index = index
        self.reply, self.size = call.reply, reply_size(call)
        self._ended = ended
        self.output: tuple[str, Sequence[int], str | None, StopReason] = ("", (), None, None)
        self.error: EndpointError | None = None

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        self.output = (text, token_ids, finish_reason, stop_reason)
        self._ended(self)

    def fail(self, error: EndpointError) -> None:
        self.error = error
        self._ended(self)
