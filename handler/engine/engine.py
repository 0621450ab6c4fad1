"""The embedded engine: requests from many threads, health, metrics, LoRA adapters and shutdown."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from handler.engine import core_end
from handler.engine.adapters.adapters import Adapters, Bring
from handler.engine.api_routes import PLAIN
from handler.engine.contract import EngineAdapter, PreparedRequest, Serving, WholeReply
from handler.engine.engine_request import EngineRequest, RunningRequest, ServingRequest
from handler.engine.event_loop import LoopThread
from handler.engine.frontend_args import FrontendSettings
from handler.engine.generation import sampling_check
from handler.engine.generation.generation import Generation, Sink
from handler.engine.generation.prompt_renderer import PromptRenderer
from handler.engine.generation.request_limits import RequestLimits
from handler.engine.heartbeat import Heartbeat
from handler.errors import EndpointError, PlainTextOnly
from handler.neuron.buckets.compiled_buckets import CompiledBuckets
from handler.neuron.hardware import host_memory

DEFAULT_MAX_SEQUENCES = 128
logger = logging.getLogger(__name__)


class Engine:
    """An engine on the serving process's event loop. `handler.engine.launch` makes it.

    :ivar facts: what vLLM says of the engine.
    :ivar prompts: renders prompts for this model.
    :ivar limits: the limits of one request.
    :ivar base_names: the model's own names. The first one is used in replies.
    :ivar adapters: the loaded LoRA adapters. None if the engine was started without LoRA.
    :ivar slots: how many sequences are decoded at the same time. Further requests wait.
    :ivar metrics_registry: vLLM's metrics, if this is a further engine of its process. The metrics of the first engine
        are in prometheus_client's global registry, and this is None.
    :ivar buckets: what lengths are padded to, or would be on Neuron. None if that is not known.
    :ivar failure: the error that requests get after the engine has ended. None: EngineFailed, which says that the
        engine is being replaced.
    """

    def __init__(
        self,
        adapter: EngineAdapter,
        loop: LoopThread,
        served_names: Sequence[str],
        stall: float,
        limits: RequestLimits,
        front_end: FrontendSettings | None = None,
    ) -> None:
        self._adapter = adapter
        self.loop = loop
        self.base_names = tuple(served_names)
        self.adapters: Adapters | None = None
        self.failure: EndpointError | None = None
        self.buckets: CompiledBuckets | None = None
        self.front_end = front_end = front_end or FrontendSettings()
        self.serving = adapter.serving
        self.traits = PLAIN if adapter.serving is None else adapter.serving.traits
        self.max_sequences = DEFAULT_MAX_SEQUENCES
        self.requests: set[RunningRequest] = set()
        self.limits = limits
        self.facts = facts = adapter.facts
        for name, value in sampling_check.ignored_defaults(facts.sampling_defaults, limits.sampling).items():
            logger.warning("generation_config.json sets %s to %s, which the engine ignores", name, value)
        self.allowed_media_domains = facts.media_domains
        self.slots = facts.slots
        self.prompts = PromptRenderer(
            facts.tokenizer,
            facts.template,
            facts.content_as_parts,
            limits.vocab_size,
            limits.max_model_len * facts.longest_token,
            defaults=front_end.default_chat_template_kwargs,
        )
        self._oom_kills = host_memory.oom_kills()
        self.metrics_registry = adapter.metrics_registry
        self.pids = adapter.pids()
        self._heartbeat = Heartbeat(adapter.probe, self.pids, stall)
        self._heartbeat_task: Future[None] = loop.spawn(self._heartbeat.run())

    def with_adapters(self, directory: Path, limit: int, bring: Bring) -> Adapters:
        """Creates the table of LoRA adapters, which is empty at first. Call once, on an engine with LoRA."""
        adapters = self.adapters = Adapters(self._adapter, self.loop, self.base_names, directory, limit, bring)
        return adapters

    @property
    def served_names(self) -> tuple[str, ...]:
        """The names that a request may give as its model: the model's own, then the adapters'."""
        return self.base_names + self.adapter_names

    @property
    def adapter_names(self) -> tuple[str, ...]:
        return () if self.adapters is None else self.adapters.names()

    def request(self, generation: Generation, sink: Sink) -> EngineRequest:
        """A request that is checked against the limits and by vLLM. It is queued when its `begin` is called.

        :raises EndpointError: as `RequestLimits.check`. InvalidField for a sampling parameter that vLLM rejects.
        """
        max_tokens = self.limits.check(generation)
        params = self._adapter.sampling_params(generation.sampling, max_tokens, generation.stream)
        return EngineRequest(self, sink, self._adapter, generation, params)

    def require_serving(self) -> Serving:
        """vLLM's own OpenAI serving classes, over this engine.

        :raises PlainTextOnly: the installed vLLM has serving classes that this software does not know.
        """
        if self.serving is None:
            raise PlainTextOnly
        return self.serving

    def serving_request(
        self, prepared: PreparedRequest, sink: Sink, keep: Callable[[WholeReply], None]
    ) -> ServingRequest:
        """A request that vLLM's serving classes answer. It starts when its `begin` is called."""
        return ServingRequest(self, sink, self.require_serving(), prepared, keep)

    def unfinished(self) -> int:
        """How many requests hold a slot or wait for one."""
        return self._adapter.unfinished()

    def record_steps(self) -> None:
        """Brings vLLM's metrics up to date. Call on the loop."""
        self._adapter.record_steps()

    def ended(self) -> str:
        """How the process of a dead engine ended, for "the engine's process ..."."""
        return core_end.described(*self._end())

    def problem(self) -> str | None:
        """Why the engine is unhealthy: it has died, or it makes no progress. None if it is healthy."""
        if self._adapter.is_dead():
            return f"its process {self.ended()}"
        if self._heartbeat.stalled():
            return f"it has made no progress for {self._heartbeat.late():.0f} s"
        return None

    def dead(self) -> bool:
        return self._adapter.is_dead()

    def end_of_core(self) -> core_end.CoreEnded | None:
        """How the core of a dead engine has ended. None: the engine is not dead."""
        return core_end.CoreEnded(core_end.reaped(self._adapter.exit_statuses)) if self.dead() else None

    def was_killed(self) -> bool:
        """Whether somebody has killed the dead engine's core. False: it has ended by itself, or that is not known."""
        return core_end.from_outside(*self._end())

    def _end(self) -> tuple[list[int], int]:
        return self._adapter.exit_statuses(), host_memory.oom_kills() - self._oom_kills

    def stalled_for(self) -> float:
        """For how many seconds a stalled engine has not answered. 0 if it is not stalled."""
        return self._heartbeat.late() if self._heartbeat.stalled() else 0.0

    def fail_requests(self, error: EndpointError) -> None:
        """Ends every request with the same error, so that none hangs."""
        self.loop.call(self._fail_all, error)

    def _fail_all(self, error: EndpointError) -> None:
        for request in list(self.requests):
            request.end(error)

    def stop(self) -> None:
        """Ends the core's processes, even those that do not respond."""
        self._heartbeat_task.cancel()
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            self._adapter.shutdown()
        except Exception as error:
            logger.warning("vLLM's shutdown raised %s", type(error).__name__)
