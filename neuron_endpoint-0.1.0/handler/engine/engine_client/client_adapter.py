"""An engine by vLLM's `EngineClient` alone: the part of an adapter that every generation shares.

Beside the abstract class these attributes are used, which every client has: `model_config`, `vllm_config`, and
`shutdown` or `close`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import vllm
from prometheus_client import CollectorRegistry
from vllm import SamplingParams
from vllm.lora.request import LoRARequest

from handler.engine.contract import EngineFacts, EngineSettings, Serving
from handler.engine.engine_client.client_queue import ClientQueue
from handler.engine.engine_client.client_requests import SAMPLING_DEFAULTS, ClientRequests
from handler.engine.engine_client.client_requests import sampling_params as client_sampling_params
from handler.engine.engine_client.input_gate import InputGate
from handler.engine.engine_client.processes.engine_processes import EngineProcesses
from handler.engine.generation.generation import Generation, Grammar, Sampling, StageListener
from handler.errors import EndpointError, InvalidField


class ClientAdapter:
    """As `EngineAdapter`. Make it on the engine's loop, before the client has requests.

    :param client: vLLM's client.
    :param tokenizer: the client's own.
    :param resolve_template: gives the chat template for a tokenizer and a configured one, and whether it expects parts.
    :param dead: vLLM's exceptions for an engine that has ended.
    """

    def __init__(
        self,
        client: Any,
        tokenizer: Any,
        processes: EngineProcesses,
        settings: EngineSettings,
        resolve_template: Callable[[Any, Any, EngineSettings], tuple[str | None, bool]],
        dead: tuple[type[Exception], ...],
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
        template, as_parts = resolve_template(client, tokenizer, settings)
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
        self._queue: ClientQueue | None = None
        self._dead = dead
        self._requests: ClientRequests

    def _accept(self) -> None:
        """Call once the client's `generate` is as it is to be."""
        whole_core = getattr(self.client.vllm_config, "kv_transfer_config", None) is None
        self._requests = ClientRequests(self.client.generate, self._dead, self.facts.tokenizer, grammars_end=whole_core)

    def sampling_params(self, sampling: Sampling, max_tokens: int, stream: bool) -> SamplingParams:
        self._require_grammars(sampling.grammar)
        return client_sampling_params(sampling, max_tokens, self.facts.sampling_defaults, stream)

    def _require_grammars(self, grammar: Grammar | None) -> None:
        """:raises InvalidField: there is a grammar, and this engine takes none."""
        if grammar is not None and not self.facts.grammars:
            raise InvalidField(grammar.field, f"this engine, vLLM {vllm.__version__}, takes no grammar: leave it out")

    async def add(
        self, generation: Generation, params: SamplingParams, sink: StageListener, lora: Any = None
    ) -> str | None:
        prompt = {"prompt_token_ids": list(generation.prompt)}
        return None if sink.ended else self._requests.begin(generation, prompt, params, sink, lora)

    async def abort(self, name: str) -> None:
        self._requests.abort(name)

    def as_endpoint_error(self, error: object) -> EndpointError:
        return self._requests.as_endpoint_error(error)

    def unfinished(self) -> int:
        return self._queue.running if self._queue is not None else len(self._requests)

    async def probe(self) -> None:
        await self.client.is_sleeping()

    def is_dead(self) -> bool:
        return bool(self.client.errored)

    def pids(self) -> tuple[int, ...]:
        return self._processes.pids()

    def exit_statuses(self) -> list[int]:
        return self._processes.exit_statuses()

    def fail_all(self, error: EndpointError) -> None:
        self._requests.fail_all(error)

    def shutdown(self) -> None:
        self.client.shutdown()

    def lora_request(self, identity: int, name: str, path: str) -> Any:
        return LoRARequest(lora_name=name, lora_int_id=identity, lora_path=path)

    async def add_lora(self, request: Any) -> None:
        try:
            await self.client.add_lora(request)
        except Exception as error:  # vLLM wraps whatever the core raised into a plain Exception
            text = str(error).partition("method failed:")[2].strip() or type(error).__name__
            raise ValueError(text.splitlines()[0].rstrip(".")[:300]) from None

    async def pin_lora(self, identity: int) -> None:
        await self.client.pin_lora(identity)

    async def remove_lora(self, identity: int) -> None:
        await self.client.remove_lora(identity)


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
