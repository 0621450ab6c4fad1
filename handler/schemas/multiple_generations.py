"""A request with several generations, which start together and are answered together. They are never streamed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from handler.engine.core_queue import join_group
from handler.engine.engine import Engine
from handler.engine.generation.generation import Generation, Sink, StopReason, TokenCounts
from handler.engine.generation.request_cost import COST, RequestCost
from handler.errors import EndpointError
from handler.schemas.reply import Reply, RunningCall

Output = tuple[str, Sequence[int], str | None, StopReason]


class MultipleReply(Reply):
    """A reply made of several outputs, which are in the order of the generations. It has no events."""

    __slots__ = ("outputs",)

    def __init__(self) -> None:
        self.outputs: Sequence[Output] = ()

    def event(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        return b""


@dataclass(frozen=True, slots=True)
class MultipleCall:
    """A call with several generations."""

    generations: tuple[Generation, ...]
    reply: MultipleReply
    stream: bool = False
    tokens: TokenCounts = field(default_factory=TokenCounts)

    def request(self, engine: Engine, sink: Sink) -> RunningCall:
        self.tokens.prompt = sum(len(generation.prompt) for generation in self.generations)
        open_ended = self.generations[0].sampling.max_tokens is None  # they have the same parameters
        cost = RequestCost(open_ended=open_ended, prompts=len(self.generations))
        running = RunningGenerations(self.reply, sink, len(self.generations), self.tokens, cost)
        running.requests = [
            engine.request(generation, GenerationPart(running, place))
            for place, generation in enumerate(self.generations)
        ]
        return running


@dataclass(slots=True)
class RunningGenerations:
    """Runs the generations of one request as one. The first failure ends the others."""

    reply: MultipleReply
    sink: Sink
    waiting: int
    tokens: TokenCounts
    cost: RequestCost
    outputs: list[Output] = field(init=False)
    ended: bool = False
    requests: Sequence[RunningCall] = ()

    def __post_init__(self) -> None:
        self.outputs = [("", (), None, None)] * self.waiting

    def begin(self, seconds: float | None = None, late: EndpointError | None = None) -> None:
        join_group()
        outer = COST.set(self.cost)
        try:
            for request in self.requests:
                request.begin(seconds, late)
        finally:
            COST.reset(outer)  # the lines of a batch begin in one context

    def push(self, place: int, output: Output) -> None:
        self.outputs[place] = output
        self.tokens.output += len(output[1])
        self.tokens.ended(output[2])
        self.waiting -= 1
        if self.waiting == 0 and not self.ended:
            self.ended, self.requests = True, ()
            self.reply.outputs = self.outputs
            self.sink.push("", (), "stop", None)

    def end(self, error: EndpointError) -> None:
        if not self.ended:
            self.cancel()
            self.sink.fail(error)

    def cancel(self) -> None:
        self.ended = True
        requests, self.requests = self.requests, ()  # each refers to this
        for request in requests:
            request.cancel()


@dataclass(slots=True)
class GenerationPart:
    """The sink of one generation."""

    running: RunningGenerations
    place: int

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        self.running.push(self.place, (text, token_ids, finish_reason, stop_reason))

    def fail(self, error: EndpointError) -> None:
        self.running.end(error)
