"""The embedded engine: started once, asked from many threads, watched, and ended without leaving a process behind."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handler.engine.adapters.adapter_table import AdapterTable
from handler.engine.adapters.adapters import Adapters, Bring
from handler.engine.adapters.shared_adapters import AdapterNotes, FollowedAdapters
from handler.engine.api_routes import PLAIN
from handler.engine.core_clients import CoreClient, CoreClients
from handler.engine.engine_request import EngineRequest
from handler.engine.event_loop import LoopThread
from handler.engine.exit_watch import on_exit
from handler.engine.frontend_args import FrontendSettings
from handler.engine.generation import sampling_check
from handler.engine.generation.generation import Generation, Sink
from handler.engine.generation.prompt_renderer import PromptRenderer
from handler.engine.generation.request_limits import RequestLimits
from handler.engine.heartbeat import Heartbeat
from handler.engine.serving_request import ServingRequest
from handler.errors import (
    EndpointError,
    PlainTextOnly,
)

if TYPE_CHECKING:  # it imports vLLM
    from handler.engine.vllm_api.serving.serving_classes import PreparedRequest, Serving, WholeReply

DEFAULT_MAX_SEQUENCES = 128
logger = logging.getLogger(__name__)


class Engine:
    """vLLM's AsyncLLM on a loop of its own. `handler.engine.launch` makes it.

    :ivar prompts: renders prompts for this model.
    :ivar limits: what one request may ask for.
    :ivar base_names: the model's own names; the first is the one in replies.
    :ivar adapters: what is loaded over the model; None where the engine takes no adapters.
    :ivar slots: sequences decoded at once; more wait.
    :ivar seat: this process's place at a core that another process owns; None: this one owns it.
    :ivar seats: the places for other processes; None where there are none.
    :ivar figures: vLLM's own, where they are not in prometheus_client's one registry: of a process's further engines.
    :ivar failure: what its requests are told when it has ended; None: that it is being replaced (EngineFailed).
    """

    def __init__(
        self,
        llm: Any,
        loop: LoopThread,
        served_names: Sequence[str],
        stall: float,
        limits: RequestLimits,
        front_end: FrontendSettings | None = None,
        seat: CoreClient | None = None,
    ) -> None:
        from handler.engine.vllm_api.core import core as vllm_api

        self._api = vllm_api
        self._llm = llm
        self.loop = loop
        self.base_names = tuple(served_names)
        self.adapters: AdapterTable | None = None
        self.failure: EndpointError | None = None
        self.front_end = front_end = front_end or FrontendSettings()
        self.serving: Serving | None = None
        self.traits = PLAIN
        self.max_sequences = DEFAULT_MAX_SEQUENCES
        self.allowed_media_domains: tuple[str, ...] = ()
        self.serving_requests: set[ServingRequest] = set()
        self.limits = limits
        self._defaults = vllm_api.sampling_defaults(llm)
        for name, value in sampling_check.ignored_defaults(self._defaults, limits.sampling).items():
            logger.warning("generation_config.json asks for %s %s, which on-device sampling ignores", name, value)
        self.slots = vllm_api.max_num_seqs(llm)
        tokenizer = vllm_api.own_tokenizer(llm)
        template = vllm_api.chat_template(llm, tokenizer, front_end.chat_template)
        as_parts = vllm_api.content_as_parts(llm, tokenizer, template, front_end.chat_template_content_format)
        self.prompts = PromptRenderer(
            tokenizer,
            template,
            as_parts,
            limits.vocab_size,
            limits.max_model_len * vllm_api.longest_token(tokenizer),
            defaults=front_end.default_chat_template_kwargs,
        )
        self.seat = seat
        self.seats: CoreClients | None = None
        self.figures = vllm_api.own_figures(llm)
        self.pids = vllm_api.core_pids(llm) if seat is None else seat.pids
        self._pulse = Heartbeat(lambda: vllm_api.question(llm), self.pids, stall)
        self._beat: Future[None] = loop.spawn(self._pulse.beat())
        if seat is not None:
            loop.run(self._watch_core(seat.pids[0]))

    async def _watch_core(self, pid: int) -> None:
        """vLLM's client sees the end of a core only where it has started it."""
        from handler.engine.vllm_api.core import shared_clients as front_ends

        on_exit(pid, self.loop.loop, lambda: front_ends.core_ended(self._llm))

    def caches_prefixes(self) -> bool:
        """A prompt that begins as an earlier one finds its key-value cache."""
        return self._api.caches_prefixes(self._llm)

    def takes_adapters(self) -> bool:
        """It was started with LoRA."""
        return self._api.takes_adapters(self._llm)

    def with_adapters(self, directory: Path, limit: int, bring: Bring, notes: AdapterNotes | None = None) -> Adapters:
        """Its adapters, none loaded yet. Once, of an engine that takes them.

        :param notes: for other processes over the same engine.
        """
        found = self.adapters = Adapters(self._llm, self.loop, self.base_names, directory, limit, bring, notes=notes)
        return found

    def follow_adapters(self, notes: AdapterNotes) -> None:
        """The adapters that the engine's owner loads and writes down."""
        from handler.engine.vllm_api.core import lora_adapters as lora

        self.adapters = FollowedAdapters(self.base_names, notes, lora.request)

    @property
    def served_names(self) -> tuple[str, ...]:
        """The names a request may ask for: the model's own, then the adapters'."""
        return self.base_names + self.adapter_names

    @property
    def adapter_names(self) -> tuple[str, ...]:
        return () if self.adapters is None else self.adapters.names()

    def request(self, generation: Generation, sink: Sink) -> EngineRequest:
        """A request that is ready to begin: checked against the limits and by vLLM, not yet queued.

        :raises EndpointError: as `RequestLimits.check`; InvalidField for a sampling parameter that vLLM refuses.
        """
        max_tokens = self.limits.check(generation)
        params = self._api.sampling_params(generation.sampling, max_tokens, self._defaults, generation.stream)
        return EngineRequest(self, generation, params, sink)

    def require_serving(self) -> Serving:
        """vLLM's serving classes over this engine.

        :raises PlainTextOnly: this version's are not known here.
        """
        if self.serving is None:
            raise PlainTextOnly
        return self.serving

    def serving_request(
        self, prepared: PreparedRequest, sink: Sink, keep: Callable[[WholeReply], None]
    ) -> ServingRequest:
        """A request that vLLM's serving classes answer, ready to begin."""
        return ServingRequest(self, self.require_serving(), prepared, sink, keep)

    async def add(self, generation: Generation, params: Any, request: EngineRequest) -> None:
        """Queues a request. Call on the loop."""
        try:
            lora = None if request.adapter is None else request.adapter.request
            request.internal_id = await self._api.add_request(self._llm, generation, params, request, lora)
        except Exception as error:
            request.fail(self._api.as_endpoint_error(error))
            return
        if request.cancelled and request.internal_id is not None:
            await self._api.abort(self._llm, request.internal_id)

    def abort(self, internal_id: str) -> None:
        """Frees a request's slot. Call on the loop."""
        self.loop.task(self._api.abort(self._llm, internal_id))

    def unfinished(self) -> int:
        """Requests that hold or await a slot."""
        return self._api.unfinished(self._llm)

    def trouble(self) -> str | None:
        """Why the engine cannot be trusted now, or None: it died, or no longer turns."""
        if self._api.is_dead(self._llm):
            return "its process ended"
        if self._pulse.stalled():
            return f"it has made no progress for {self._pulse.late():.0f} s"
        return None

    def dead(self) -> bool:
        return self._api.is_dead(self._llm)

    def stalled_for(self) -> float:
        """Seconds that a stalled engine has been silent; 0 for one that turns."""
        return self._pulse.late() if self._pulse.stalled() else 0.0

    def fail_requests(self, error: EndpointError) -> None:
        """Ends every request with one error, so that none hangs."""
        self.loop.call(self._fail_all, error)

    def _fail_all(self, error: EndpointError) -> None:
        for request in list(self.serving_requests):
            request.fail(error)
        self._api.fail_all(self._llm, error)

    def release(self, seat: int, timeout: float = 2.0) -> int:
        """Frees what the front end on a seat held, which has ended; returns how many requests. Of the owner.

        :raises Exception: the core has ended, or does not answer.
        """
        from handler.engine.vllm_api.core import shared_clients as front_ends

        return self.loop.run(front_ends.release(self._llm, seat), timeout)

    def stop(self) -> None:
        """Ends the core's processes, stopped or deaf ones too, and the loop; of a further front end, itself alone."""
        self._beat.cancel()
        for pid in self.pids if self.seat is None else ():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            self._api.shutdown(self._llm)
        except Exception as error:
            logger.warning("vLLM's shutdown raised %s", type(error).__name__)
        self.loop.stop()
