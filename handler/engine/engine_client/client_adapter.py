"""An engine by vLLM's `EngineClient` alone: the part of an adapter that every generation shares.

Beside the abstract class these attributes are used, which every client has: `model_config`, `vllm_config`, and
`shutdown` or `close`.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Mapping
from contextlib import aclosing
from typing import Any, ClassVar

import vllm
from prometheus_client import CollectorRegistry
from vllm import SamplingParams
from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind

from handler.engine.contract import EngineFacts, EngineSettings, Serving
from handler.engine.engine_client.client_error import PROBLEM, REFUSALS, as_invalid_field, rejected
from handler.engine.engine_client.client_queue import ClientQueue
from handler.engine.engine_client.deferred_positions import DeferredPositions
from handler.engine.engine_client.input_gate import InputGate
from handler.engine.engine_client.processes.engine_processes import EngineProcesses
from handler.engine.generation.generation import Generation, Grammar, Sampling, StageListener
from handler.engine.generation.request_cost import COST, RequestCost
from handler.engine.generation.token_pieces import token_pieces
from handler.errors import EndpointError, EngineBusy, EngineFailed, GenerationFailed, InvalidField

try:
    # With the same arguments on all versions.
    from vllm.renderers.hf import resolve_chat_template, resolve_chat_template_content_format
except ImportError:  # 0.9.1, 0.11.0
    from vllm.entrypoints.chat_utils import resolve_chat_template_content_format
    from vllm.entrypoints.chat_utils import resolve_hf_chat_template as resolve_chat_template

logger = logging.getLogger(__name__)
# vLLM's own defaults on the OpenAI routes, for values that neither the request nor generation_config.json sets
# (vllm/entrypoints/openai/chat_completion/protocol.py).
SAMPLING_DEFAULTS: Mapping[str, float] = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
}

# The fields of `Sampling` that vLLM has under the same name and in the same form.
SAMPLING_FIELDS = tuple(
    name
    for name in Sampling.__slots__
    if name not in ("max_tokens", "max_tokens_field", "stop", "stop_token_ids", "grammar")
)


class ClientAdapter:
    """As `EngineAdapter`: a request is a task that reads the client's `generate`. Tested on 0.9.1 to 0.32.0.

    Make it on the engine's loop, before the client has requests.

    :param client: vLLM's client.
    :param tokenizer: the client's own.
    :param queue_calls: the queue and the gate are in front of each call of the client.
    :cvar dead: vLLM's exceptions for an engine that has ended.
    """

    dead: ClassVar[tuple[type[Exception], ...]]

    def __init__(
        self, client: Any, tokenizer: Any, processes: EngineProcesses, settings: EngineSettings, *, queue_calls: bool
    ) -> None:
        self.client = client
        self.serving: Serving | None = None
        self.metrics_registry: CollectorRegistry | None = None
        self._processes = processes
        config, model = client.vllm_config, client.model_config
        own = model.get_diff_sampling_param()
        if settings.lengths.sequence is not None:
            # In vLLM's own checks too, those of its serving classes. The core has a copy of its own.
            model.max_model_len = min(settings.lengths.sequence, model.max_model_len)
        tokenizer = _own_tokenizer(tokenizer)
        template, as_parts = _template(model, tokenizer, settings)
        lora, cap = config.lora_config, own.get("max_tokens")
        self.facts = EngineFacts(
            context=int(model.max_model_len),
            vocab_size=int(model.get_vocab_size()),
            slots=int(config.scheduler_config.max_num_seqs) * int(config.parallel_config.data_parallel_size),
            sampling_defaults={**SAMPLING_DEFAULTS, **own},
            default_max_tokens=None if cap is None else int(cap),
            media_domains=tuple(getattr(model, "allowed_media_domains", None) or ()),  # since 0.11
            tokenizer=tokenizer,
            longest_token=max(map(len, tokenizer.get_vocab())),
            template=template,
            content_as_parts=as_parts,
            caches_prefixes=bool(config.cache_config.enable_prefix_caching),
            adapters=None if lora is None else (int(lora.max_loras), int(lora.max_lora_rank)),
            grammars=False,
        )
        self._gate = InputGate.of(settings.cost, model, tokenizer, settings.lengths.prompt)
        limits = settings.queue(self.facts.slots)
        self._queue = ClientQueue(client, limits, self._gate, self.dead) if queue_calls else None
        # Before vLLM's serving classes get their own.
        self._generate = client.generate
        self._running: dict[str, tuple[asyncio.Task[None], StageListener]] = {}

    def sampling_params(self, sampling: Sampling, max_tokens: int, stream: bool) -> SamplingParams:
        grammar, defaults = sampling.grammar, self.facts.sampling_defaults
        if grammar is not None and not self.facts.grammars:
            raise InvalidField(grammar.field, f"this engine, vLLM {vllm.__version__}, takes no grammar: leave it out")
        fields = {name: getattr(sampling, name) for name in SAMPLING_FIELDS}
        try:
            return SamplingParams(
                **{name: defaults.get(name) if value is None else value for name, value in fields.items()},
                max_tokens=max_tokens,
                stop=list(sampling.stop),
                stop_token_ids=list(sampling.stop_token_ids),
                output_kind=RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY,
                **self._own_parameters(grammar),
            )
        except REFUSALS as error:
            raise as_invalid_field(error, "sampling parameters") from None

    def _own_parameters(self, grammar: Grammar | None) -> Mapping[str, Any]:
        """The sampling parameters that only some versions have."""
        return {}

    async def add(
        self, generation: Generation, params: SamplingParams, sink: StageListener, lora: Any = None
    ) -> str | None:
        prompt = {"prompt_token_ids": list(generation.prompt)}
        return None if sink.ended else self._begin(generation, prompt, params, sink, lora)

    def _begin(
        self, generation: Generation, prompt: object, params: SamplingParams, sink: StageListener, lora: Any
    ) -> str:
        """Starts a request, and returns its name for `abort`."""
        name = generation.request_id
        task = asyncio.get_running_loop().create_task(self._run(generation, prompt, params, sink, lora))
        self._running[name] = task, sink
        task.add_done_callback(lambda ended: self._running.pop(name, None))
        return name

    async def _run(
        self, generation: Generation, prompt: object, params: SamplingParams, sink: StageListener, lora: Any
    ) -> None:
        sampling = generation.sampling
        COST.set(COST.get() or RequestCost(open_ended=sampling.max_tokens is None))
        traced = {} if generation.trace is None else {"trace_headers": generation.trace}
        try:
            made = self._generate(prompt, params, generation.request_id, lora_request=lora, **traced)
            async with aclosing(made) as outputs:
                async for output in outputs:
                    self._push(output, generation, sink)
        except Exception as error:
            sink.fail(self.as_endpoint_error(error, sampling.grammar, generation.names))

    def _push(self, output: RequestOutput, generation: Generation, sink: StageListener) -> None:
        completion: CompletionOutput = output.outputs[0]
        ids, grammar = completion.token_ids, generation.sampling.grammar
        if grammar is not None and rejected(completion.finish_reason, ids):
            sink.fail(InvalidField(grammar.field, PROBLEM))
            return
        parts = [(completion.text, ids)]
        if generation.apart and len(ids) > 1:  # vLLM joins the outputs of several steps that nobody has taken yet
            parts = [(text, [token]) for text, token in token_pieces(self.facts.tokenizer, completion.text, ids)]
        prompt, place = output.prompt_logprobs, 0
        for number, (text, tokens) in enumerate(parts, 1):
            if generation.scores is not None:
                entries = DeferredPositions(completion.logprobs or (), slice(place, place + len(tokens)))
                generation.scores(entries, DeferredPositions(prompt, slice(None)) if prompt else None)
                prompt, place = None, place + len(tokens)
            ended = (completion.finish_reason, completion.stop_reason) if number == len(parts) else (None, None)
            sink.push(text, tokens, *ended)

    async def abort(self, name: str) -> None:
        """vLLM frees the slot when its generator ends."""
        if name in self._running:
            self._running[name][0].cancel()

    def as_endpoint_error(
        self, error: object, grammar: Grammar | None = None, names: Mapping[str, str] | None = None
    ) -> EndpointError:
        """
        :param grammar: that of the request, which is what vLLM rejects if its error names no other parameter.
        :param names: as in `Generation`.
        """
        if isinstance(error, EndpointError):
            return error
        if isinstance(error, self.dead):
            return EngineFailed("its process ended")
        if isinstance(error, REFUSALS):
            return as_invalid_field(error, "prompt" if grammar is None else grammar.field, names)
        if 503 in (getattr(error, "http_status", None), getattr(error, "status_code", None)):  # 0.29 and later
            return EngineBusy()
        logger.error("a request failed in the engine: %s", type(error).__name__)
        return GenerationFailed(type(error).__name__)

    def unfinished(self) -> int:
        return self._queue.running if self._queue is not None else len(self._running)

    def record_steps(self) -> None:
        """vLLM itself records each step at once."""

    async def probe(self) -> None:
        await self.client.is_sleeping()

    def is_dead(self) -> bool:
        return bool(self.client.errored)

    def pids(self) -> tuple[int, ...]:
        return self._processes.pids()

    def exit_statuses(self) -> list[int]:
        return self._processes.exit_statuses()

    def shutdown(self) -> None:
        self.client.shutdown()

    def lora_request(self, identity: int, name: str, path: str) -> Any:
        return LoRARequest(lora_name=name, lora_int_id=identity, lora_path=path)

    async def add_lora(self, request: Any) -> None:
        await self._answered(self.client.add_lora(request))

    async def remove_lora(self, identity: int) -> None:
        await self.client.remove_lora(identity)

    async def _answered(self, answer: Awaitable[object]) -> None:
        """:raises ValueError: with what the core has raised. vLLM wraps it into a plain Exception.
        :raises EngineFailed: the core has ended.
        """
        try:
            await answer
        except self.dead as error:
            raise self.as_endpoint_error(error) from None
        except Exception as error:
            text = str(error).partition("method failed:")[2].strip() or type(error).__name__
            raise ValueError(text.splitlines()[0].rstrip(".")[:300]) from None


def _template(model: Any, tokenizer: Any, settings: EngineSettings) -> tuple[str | None, bool]:
    """The chat template that vLLM would use, and whether it expects a message's content as parts.

    That is the configured one, else the processor's, the tokenizer's, or vLLM's fallback for the model type.
    """
    front = settings.front_end
    template = resolve_chat_template(tokenizer, front.chat_template, None, model_config=model)
    content_format = resolve_chat_template_content_format(
        template, None, front.chat_template_content_format, tokenizer, model_config=model
    )
    return template, bool(content_format == "openai")


def _own_tokenizer(tokenizer: Any) -> Any:
    """A copy of the tokenizer for this software's threads, which neither cuts nor pads.

    vLLM changes the truncation of its own while it works, which then raises "Already borrowed" in other threads. Its
    warm-up leaves one behind.
    """
    own = copy.deepcopy(tokenizer)
    if type(own).__name__.startswith("TokenizerPool"):
        # 0.24.0 and later: each call borrows one of several copies, which takes a seventh of the time of a template.
        own.__class__ = type(own).__base__
    if (backend := getattr(own, "backend_tokenizer", None)) is not None:
        backend.no_truncation()
        backend.no_padding()
    return own
