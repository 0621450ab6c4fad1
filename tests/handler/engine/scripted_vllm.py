"""A stand-in for an engine's adapter (`handler.engine.contract`): the engine above is the real one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from handler.engine.contract import EngineFacts, Serving
from handler.engine.generation.generation import Generation, Sampling, Sink
from handler.errors import EndpointError, GenerationFailed, InvalidField
from tests.handler.scripted_tokenizer import PLAIN_TEMPLATE, VOCAB_SIZE, ScriptedTokenizer

CONTEXT = 20
FACTS = EngineFacts(
    context=CONTEXT,
    vocab_size=VOCAB_SIZE,
    slots=4,
    sampling_defaults={"temperature": 0.6},
    default_max_tokens=None,
    media_domains=(),
    tokenizer=ScriptedTokenizer(),
    longest_token=5,
    template=PLAIN_TEMPLATE,
    content_as_parts=False,
    caches_prefixes=False,
    adapters=None,
    grammars=False,
)


class ScriptedVllm:
    """An `EngineAdapter` that is told by a test what to do.

    :ivar admitted: cleared, requests wait in `add`; on the loop.
    :ivar sinks: by internal id, of the requests that are taken in.
    :ivar aborted: internal ids, in order.
    """

    facts = FACTS
    serving: Serving | None = None
    metrics_registry = None

    def __init__(self, pids: tuple[int, ...] = ()) -> None:
        self._pids = pids
        self.admitted = asyncio.Event()
        self.admitted.set()
        self.asked: list[tuple[Generation, SimpleNamespace]] = []
        self.sinks: dict[str, Sink] = {}
        self.aborted: list[str] = []
        self.refusal: Exception | None = None
        self.earlier: tuple[str, tuple[int, ...], str | None, str | None] | None = None
        self.dead = False
        self.exits: list[int] = []
        self.stopped = False

    def pids(self) -> tuple[int, ...]:
        return self._pids

    async def probe(self) -> None:
        pass

    def sampling_params(self, sampling: Sampling, max_tokens: int, stream: bool) -> SimpleNamespace:
        if sampling.top_k == -99:
            raise InvalidField("top_k", "vLLM refuses it")
        return SimpleNamespace(max_tokens=max_tokens, stream=stream)

    async def add(self, generation: Generation, params: Any, sink: Sink, lora: object = None) -> str:
        self.asked.append((generation, params))
        await self.admitted.wait()
        if self.refusal is not None:
            raise self.refusal
        internal_id = f"{generation.request_id}-internal"
        self.sinks[internal_id] = sink
        if self.earlier is not None:
            sink.push(*self.earlier)
        return internal_id

    async def abort(self, name: str) -> None:
        self.sinks.pop(name, None)
        self.aborted.append(name)

    def unfinished(self) -> int:
        return len(self.sinks)

    def exit_statuses(self) -> list[int]:
        return self.exits

    def is_dead(self) -> bool:
        return self.dead

    def shutdown(self) -> None:
        self.stopped = True

    def as_endpoint_error(self, error: object) -> EndpointError:
        return error if isinstance(error, EndpointError) else GenerationFailed(type(error).__name__)

    def lora_request(self, identity: int, name: str, path: str) -> Any:
        raise NotImplementedError

    async def add_lora(self, request: Any) -> None:
        raise NotImplementedError

    async def remove_lora(self, identity: int) -> None:
        raise NotImplementedError
