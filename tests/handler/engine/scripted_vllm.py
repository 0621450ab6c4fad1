"""A stand-in for `handler.engine.vllm_api.core.core` and the vLLM below it: the engine above is the real one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from scripted_tokenizer import PLAIN_TEMPLATE, ScriptedTokenizer

from handler.engine.generation.generation import Generation, Sampling, Sink
from handler.errors import EndpointError, GenerationFailed, InvalidField

CONTEXT = 20


class ScriptedVllm:
    """What vLLM's AsyncLLM is to `vllm_api`, told by a test what to do.

    :ivar admitted: cleared, requests wait in `add_request`; on the loop.
    :ivar sinks: by internal id, of the requests that are taken in.
    :ivar aborted: internal ids, in order.
    """

    def __init__(self, pids: tuple[int, ...] = ()) -> None:
        self.pids = pids
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


class ScriptedApi:
    """The functions of `handler.engine.vllm_api.core.core`, over a `ScriptedVllm`."""

    def max_num_seqs(self, llm: ScriptedVllm) -> int:
        return 4

    def sampling_defaults(self, llm: ScriptedVllm) -> dict[str, float]:
        return {"temperature": 0.6}

    def own_tokenizer(self, llm: ScriptedVllm) -> ScriptedTokenizer:
        return ScriptedTokenizer()

    def longest_token(self, tokenizer: object) -> int:
        return 5

    def chat_template(self, llm: ScriptedVllm, tokenizer: object, configured: object = None) -> str:
        return PLAIN_TEMPLATE

    def content_as_parts(self, llm: ScriptedVllm, tokenizer: object, template: object, content_format: str) -> bool:
        return False

    def metrics_registry(self, llm: ScriptedVllm) -> None:
        return None

    def core_pids(self, llm: ScriptedVllm) -> tuple[int, ...]:
        return llm.pids

    async def probe(self, llm: ScriptedVllm) -> None:
        pass

    def sampling_params(self, sampling: Sampling, max_tokens: int, defaults: Any, stream: bool) -> SimpleNamespace:
        if sampling.top_k == -99:
            raise InvalidField("top_k", "vLLM refuses it")
        return SimpleNamespace(max_tokens=max_tokens, defaults=defaults, stream=stream)

    async def add_request(
        self, llm: ScriptedVllm, generation: Generation, params: Any, sink: Sink, lora: object = None
    ) -> str:
        llm.asked.append((generation, params))
        await llm.admitted.wait()
        if llm.refusal is not None:
            raise llm.refusal
        internal_id = f"{generation.request_id}-internal"
        llm.sinks[internal_id] = sink
        if llm.earlier is not None:
            sink.push(*llm.earlier)
        return internal_id

    async def abort(self, llm: ScriptedVllm, internal_id: str) -> None:
        llm.sinks.pop(internal_id, None)
        llm.aborted.append(internal_id)

    def unfinished(self, llm: ScriptedVllm) -> int:
        return len(llm.sinks)

    def exit_statuses(self, llm: ScriptedVllm) -> list[int]:
        return llm.exits

    def is_dead(self, llm: ScriptedVllm) -> bool:
        return llm.dead

    def fail_all(self, llm: ScriptedVllm, error: EndpointError) -> None:
        for sink in list(llm.sinks.values()):
            sink.fail(error)

    def shutdown(self, llm: ScriptedVllm) -> None:
        llm.stopped = True

    def as_endpoint_error(self, error: Exception) -> EndpointError:
        return error if isinstance(error, EndpointError) else GenerationFailed(type(error).__name__)
