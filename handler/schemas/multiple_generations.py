"""A request with several generations, which start together and are answered together. They are never streamed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from handler.engine.core_queue import join_group
from handler.engine.engine import Engine
from handler.engine.generation.generation import Generation, Sink, StopReason, TokenCounts
from handler.errors import EndpointError
from handler.schemas.reply import Reply, RunningCall

Output = tuple[str, Sequence[int], str | None, StopReason]


class MultipleReply(Reply, Protocol):
    """A reply that is made of several outputs."""

    def receive_all(self, outputs: Sequence[Output]) -> None:
        """Receives all outputs, in the order of the generations. Called once, before `whole`."""
        ...


@dataclass(frozen=True, slots=True)
class MultipleCall:
    """A call with several generations."""

    generations: tuple[Generation, ...]
    reply: MultipleReply
    stream: bool = False
    tokens: TokenCounts = field(default_factory=TokenCounts)

    def request(self, engine: Engine, sink: Sink) -> RunningCall:
        self.tokens.prompt = sum(len(generation.prompt) for generation in self.generations)
        running = RunningGenerations(self.reply, sink, len(self.generations), self.tokens)
        running.requests = [
            engine.request(generation, GenerationPart(running, place))
            for place, generation in enumerate(self.generations)
        ]
        return running


class RunningGenerations:
    """Runs the generations of one request as one. The first failure ends the others."""

    __slots__ = ("_outputs", "_reply", "_sink", "_tokens", "_waiting", "ended", "requests")

    def __init__(self, reply: MultipleReply, sink: Sink, parts: int, tokens: TokenCounts) -> None:
        self._tokens = tokens
        self._reply = reply
        self._sink = sink
        self._outputs: list[Output] = [("", (), None, None)] * parts
        self._waiting = parts
        self.ended = False
        self.requests: Sequence[RunningCall] = ()

    def begin(self, seconds: float | None = None, late: EndpointError | None = None) -> None:
        join_group()
        for request in self.requests:
            request.begin(seconds, late)

    def push(self, place: int, output: Output) -> None:
        self._outputs[place] = output
        self._tokens.output += len(output[1])
        self._waiting -= 1
        if self._waiting == 0 and not self.ended:
            self.ended, self.requests = True, ()
            self._reply.receive_all(self._outputs)
            self._sink.push("", (), "stop", None)

    def fail(self, error: EndpointError) -> None:
        if not self.ended:
            self.cancel()
            self._sink.fail(error)

    def cancel(self) -> None:
        self.ended = True
        requests, self.requests = self.requests, ()  # each refers to this
        for request in requests:
            request.cancel()


class GenerationPart:
    """The sink of one generation."""

    __slots__ = ("_place", "_running")

    def __init__(self, running: RunningGenerations, place: int) -> None:
        self._running = running
        self._place = place

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        self._running.push(self._place, (text, token_ids, finish_reason, stop_reason))

    def fail(self, error: EndpointError) -> None:
        self._running.fail(error)
