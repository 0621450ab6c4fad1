"""A stand-in for `handler.engine.engine.Engine`, as far as routes and watch use it: the prompt is its script.

A script is pieces between `|`. A piece is text, made as one token, or a command:

- `<hold>` makes nothing until the request is cancelled or failed;
- `<gate:NAME>` waits until `open(NAME)`;
- `<big:N>` makes a text of N letters;
- `<fail>` fails this request; `<abort>` ends it as vLLM ends an aborted one; `<refuse>` is refused by vLLM;
- `<bug>` raises before anything has begun;
- `<length>` ends with that reason. Otherwise the end is "stop".
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.engine.api_routes import PLAIN
from handler.engine.core_queue import CoreQueue
from handler.engine.engine_request import EngineRequest, RunningRequest
from handler.engine.event_loop import LoopThread
from handler.engine.frontend_args import FrontendSettings
from handler.engine.generation.generation import Generation, Sink
from handler.engine.generation.request_limits import RequestLimits
from handler.engine.queue_limits import QueueLimits
from handler.errors import EndpointError, GenerationFailed, InvalidField
from handler.neuron.buckets.compiled_buckets import CompiledBuckets
from tests.handler.scripted_tokenizer import scripted_prompts, text_of

# Small, so that a test can meet them: tokens, bytes, requests at once.
CONTEXT = 2000
MAX_BODY = 4000
PLACES = 4
SLOTS = 3


def ready_service(config: EndpointConfig, engine: ScriptedEngine) -> Service:
    """A service of this engine that is ready, after one stage."""
    service = Service.of(config, loop=engine.loop)
    service.engine = engine  # type: ignore[assignment]  # a stand-in
    service.lifecycle.stage("warm up")
    service.lifecycle.ready()
    return service


class ScriptedEngine:
    """Real loop, real requests, scripted tokens.

    :param loop: the loop of the service. None: its own.
    :param quick: its tokenizer is compiled, so that small bodies are parsed on the loop.
    :ivar begun: requests taken in.
    :ivar cancelled: requests whose slot was freed before their end.
    :ivar is_dead, silent: what the engine is to seem; `silent` in seconds.
    """

    def __init__(self, loop: LoopThread | None = None, *, quick: bool = False) -> None:
        self.loop = loop or LoopThread.start("scripted-engine")
        self.served_names = self.base_names = ("scripted",)
        self.adapter_names = ()
        self.adapters: Any = None
        self.metrics_registry = None
        self.failure: EndpointError | None = None
        self.slots, self.max_sequences = SLOTS, 64
        self.buckets: CompiledBuckets | None = None
        self.pids: tuple[int, ...] = ()
        self.prompts = scripted_prompts(quick=quick)
        self.limits = RequestLimits(CONTEXT, self.prompts.vocab_size)
        self.traits = PLAIN
        self.serving: None = None
        self.front_end = FrontendSettings()
        self.requests: set[RunningRequest] = set()
        self.begun = 0
        self.cancelled = 0
        self.is_dead = False
        self.silent = 0.0
        self.stopped = False
        self.failures: list[EndpointError] = []
        self._running: dict[str, tuple[asyncio.Task[None], EngineRequest]] = {}
        self._gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._without_token: set[str] = set()
        self.queue = CoreQueue(QueueLimits(1000, 1000, 0), self.loop.loop, self._without_token.__contains__)

    def request(self, generation: Generation, sink: Sink) -> EngineRequest:
        self.limits.check(generation)
        if text_of(generation.prompt) == "<bug>":
            raise RuntimeError("a scripted bug")
        return EngineRequest(self, sink, self, generation, None)  # type: ignore[arg-type]  # a stand-in

    async def add(
        self, generation: Generation, params: object, request: EngineRequest, lora: object = None
    ) -> str | None:
        script, name = text_of(generation.prompt), generation.request_id
        if script == "<refuse>":
            raise InvalidField("prompt", "vLLM refuses it")
        if not await self.queue.turn(name, 0, lambda: not request.ended, group=request.group):
            return None
        self._without_token.add(name)
        self.begun += 1
        self._running[name] = (asyncio.ensure_future(self._play(generation, script, request)), request)
        return name

    def as_endpoint_error(self, error: object) -> EndpointError:
        return error if isinstance(error, EndpointError) else GenerationFailed(type(error).__name__)

    async def _play(self, generation: Generation, script: str, request: EngineRequest) -> None:
        text, ids, finish = "", list[int](), "stop"
        try:
            async for piece in self._pieces(script):
                await asyncio.sleep(0)
                self._without_token.discard(generation.request_id)
                self.queue.step()
                if piece == "<length>":
                    finish = "length"
                elif generation.stream:
                    request.push(piece, [1], None, None)
                else:
                    text, ids = text + piece, [*ids, 1]
            if generation.times is not None:
                now = time.monotonic()
                generation.times(now - 0.3, now - 0.2, now - 0.1, now)
            request.push(text, [*ids, 0], finish, None)
        except GenerationFailed as error:
            request.fail(error)
        except InterruptedError:
            request.push("", [], "abort", None)
        finally:
            self._running.pop(generation.request_id, None)
            self._without_token.discard(generation.request_id)
            self.queue.left(generation.request_id)

    async def _pieces(self, script: str) -> AsyncIterator[str]:
        for piece in script.split("|"):
            name, _, value = piece.strip("<>").partition(":")
            if not piece.startswith("<") or name in ("length", "bug"):
                yield piece
            elif name == "hold":
                await asyncio.Event().wait()
            elif name == "gate":
                await self._gates[value].wait()
            elif name == "big":
                yield "x" * int(value)
            elif name == "fail":
                raise GenerationFailed("scripted")
            elif name == "abort":
                raise InterruptedError

    async def abort(self, internal_id: str) -> None:
        task, _ = self._running.pop(internal_id, (None, None))
        if task is not None:
            self.cancelled += 1
            task.cancel()

    def open(self, gate: str) -> None:
        self.loop.call(lambda: self._gates[gate].set())

    def close(self, gate: str) -> None:
        self.loop.call(lambda: self._gates[gate].clear())

    def record_steps(self) -> None:
        """It has no steps."""

    def unfinished(self) -> int:
        return len(self._running)

    def problem(self) -> str | None:
        if self.is_dead:
            return "its process ended"
        return f"it has made no progress for {self.silent:.0f} s" if self.silent else None

    def ended(self) -> str:
        return "ended"

    def dead(self) -> bool:
        return self.is_dead

    def was_killed(self) -> bool:
        return False

    def stalled_for(self) -> float:
        return self.silent

    def fail_requests(self, error: EndpointError) -> None:
        def fail() -> None:
            self.failures.append(error)
            for request in list(self.requests):
                request.end(error)

        self.loop.call(fail)

    def stop(self) -> None:
        self.stopped = True
