"""The embedded engine: started once, asked from many threads, watched, and ended without leaving a process behind."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from handler.adapters.adapters import Adapters, Bring
from handler.adapters.shared import AdapterNotes, FollowedAdapters
from handler.adapters.table import AdapterTable
from handler.config.endpoint import EndpointConfig
from handler.config.front_ends import FIELD, VARIABLE
from handler.engine import grammar_limits, sampling_check
from handler.engine.front_end import FrontEnd, front_end
from handler.engine.generation import Generation, Grammar, Sink
from handler.engine.loop import LoopThread
from handler.engine.prefill_pace import pace_limit
from handler.engine.prompt import PromptRenderer
from handler.engine.pulse import Pulse
from handler.engine.routes import PLAIN
from handler.engine.seats import SPARE_SEATS, Seat, Seats
from handler.engine.serving_ticket import ServingTicket
from handler.engine.ticket import Ticket
from handler.errors import (
    EndpointError,
    InvalidField,
    PlainTextOnly,
    PromptOverLimit,
    PromptTooLong,
    SettingError,
)
from handler.neuron.length_limits import UNLIMITED, LengthLimits, length_limits
from handler.neuron.plan import EnginePlan
from handler.neuron.sampling_limits import ON_CPU, SamplingLimits, sampling_limits

if TYPE_CHECKING:  # it imports vLLM
    from handler.engine.vllm_api.serving import Prepared, Serving, Whole

DEFAULT_MAX_SEQUENCES = 128
logger = logging.getLogger(__name__)


class Engine:
    """vLLM's AsyncLLM on a loop of its own. Make it with `Engine.start`.

    :ivar prompts: renders prompts for this model.
    :ivar max_model_len: context, in tokens: what a sequence may have before it is ended.
    :ivar max_prompt: the longest prompt in tokens, where it is shorter than the context.
    :ivar base_names: the model's own names; the first is the one in replies.
    :ivar adapters: what is loaded over the model; None where the engine takes no adapters.
    :ivar slots: sequences decoded at once; more wait.
    :ivar seat: this process's place at a core that another process owns; None: this one owns it.
    :ivar seats: the places for other processes; None where there are none.
    :ivar max_output_tokens: most tokens that one request may ask for; None: what the context leaves.
    :ivar figures: vLLM's own, where they are not in prometheus_client's one registry: of a process's further engines.
    :ivar failure: what its requests are told when it has ended; None: that it is being replaced (EngineFailed).
    """

    def __init__(
        self,
        llm: Any,
        loop: LoopThread,
        served_names: Sequence[str],
        stall: float,
        limits: SamplingLimits = ON_CPU,
        max_output_tokens: int | None = None,
        lengths: LengthLimits = UNLIMITED,
        front_end: FrontEnd | None = None,
        seat: Seat | None = None,
    ) -> None:
        from handler.engine.vllm_api import core as vllm_api

        self._api = vllm_api
        self._llm = llm
        self.loop = loop
        self.base_names = tuple(served_names)
        self.adapters: AdapterTable | None = None
        self.failure: EndpointError | None = None
        own = vllm_api.max_model_len(llm)
        self.max_model_len = min(own, lengths.sequence or own)
        self.max_prompt = lengths.prompt
        front_end = front_end or FrontEnd()
        self.front_end = front_end
        self.serving: Serving | None = None
        self.traits = PLAIN
        self.max_sequences = DEFAULT_MAX_SEQUENCES
        self.allowed_media_domains: tuple[str, ...] = ()
        self.serving_tickets: set[ServingTicket] = set()
        self.limits = limits
        self._defaults = vllm_api.sampling_defaults(llm)
        for name, value in sampling_check.ignored_defaults(self._defaults, limits).items():
            logger.warning("generation_config.json asks for %s %s, which on-device sampling ignores", name, value)
        self.slots = vllm_api.max_num_seqs(llm)
        self.max_output_tokens = max_output_tokens
        self._max_tokens_cap = vllm_api.default_max_tokens(llm)
        tokenizer = vllm_api.own_tokenizer(llm)
        template = vllm_api.chat_template(llm, tokenizer, front_end.chat_template)
        as_parts = vllm_api.content_as_parts(llm, tokenizer, template, front_end.chat_template_content_format)
        self.prompts = PromptRenderer(
            tokenizer,
            template,
            as_parts,
            vllm_api.vocab_size(llm),
            defaults=front_end.default_chat_template_kwargs,
        )
        self.seat = seat
        self.seats: Seats | None = None
        self.figures = vllm_api.own_figures(llm)
        self.pids = vllm_api.core_pids(llm) if seat is None else seat.pids
        self._pulse = Pulse(lambda: vllm_api.question(llm), self.pids, stall)
        self._beat: Future[None] = loop.spawn(self._pulse.beat())
        if seat is not None:
            loop.run(self._watch_core(seat.pids[0]))

    @classmethod
    def start(
        cls,
        plan: EnginePlan,
        config: EndpointConfig,
        stage: Callable[[str], None] = lambda name: None,
        *,
        further: bool = False,
    ) -> Engine:
        """Imports vLLM, starts its core and waits until it can be asked. 20 to 60 s on CPU.

        :param plan: what vLLM is started with.
        :param config: names the setting behind an argument that is refused; and how long a stall is.
        :param further: beside others in this process.
        :raises SettingError: an engine argument that vLLM's parser refuses.
        :raises Exception: whatever vLLM raises when it cannot start.
        """
        stage("import vLLM")
        from handler.engine.vllm_api import core as vllm_api

        engine_args, pace = vllm_api.engine_args(plan.engine_args, config), pace_limit(config, plan)
        if config.front_ends == 1:
            return cls._made(
                plan, config, engine_args, lambda: vllm_api.build_engine(engine_args, pace, further=further), stage
            )
        setting = config.source(FIELD).name or VARIABLE
        if not vllm_api.DIRECT:
            raise SettingError(setting, "it is known of vLLM 0.16 only", "Leave it out, or set it to 1.")
        from handler.engine.vllm_api import front_ends

        seats: list[Seats] = []

        def launch() -> Any:
            llm, found = front_ends.launch(engine_args, config.front_ends + 1 + SPARE_SEATS, setting, pace)
            seats.append(found)
            return llm

        engine = cls._made(plan, config, engine_args, launch, stage)
        engine.seats = seats[0]
        return engine

    @classmethod
    def join(cls, plan: EnginePlan, config: EndpointConfig, seat: Seat) -> Engine:
        """A further front end of an engine that another process has started and owns.

        :param plan: what that process started it with.
        :param seat: one that nobody had before.
        """
        from handler.engine.vllm_api import core as vllm_api
        from handler.engine.vllm_api import front_ends

        engine_args = vllm_api.engine_args(plan.engine_args, config)

        def join() -> Any:
            return front_ends.join(engine_args, seat.seats, seat.index, pace_limit(config, plan))

        return cls._made(plan, config, engine_args, join, seat=seat)

    @classmethod
    def _made(
        cls,
        plan: EnginePlan,
        config: EndpointConfig,
        engine_args: Any,
        build: Callable[[], Any],
        stage: Callable[[str], None] = lambda name: None,
        seat: Seat | None = None,
    ) -> Engine:
        """:param build: makes vLLM's client; called on the loop that will serve it."""
        from handler.engine.vllm_api import core as vllm_api

        front = front_end(config, Path(engine_args.model))
        serving_api = _serving_api()
        if serving_api is not None:
            serving_api.check_parsers(engine_args, front)
        stage("start engine")
        loop = LoopThread.start()

        async def built() -> Any:
            return build()

        llm = None
        try:
            llm = loop.run(built())
            domains = vllm_api.allowed_media_domains(llm)
            lengths = length_limits(plan)
            vllm_api.hold_lengths(llm, lengths.prompt, lengths.sequence)
            serving = None
            if serving_api is not None:
                starting = serving_api.Serving.start(llm, engine_args, front, config.max_output_tokens)
                serving = loop.run(starting)
        except BaseException:
            if llm is not None:
                vllm_api.shutdown(llm)
            loop.stop()
            raise
        names, limits = engine_args.served_model_name, sampling_limits(plan)
        engine = cls(llm, loop, names, config.stall, limits, config.max_output_tokens, lengths, front, seat)
        if serving is not None:
            engine.serving, engine.traits = serving, serving.traits
        engine.max_sequences, engine.allowed_media_domains = config.max_sequences, domains
        return engine

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
        from handler.engine.vllm_api import lora

        self.adapters = FollowedAdapters(self.base_names, notes, lora.request)

    @property
    def served_names(self) -> tuple[str, ...]:
        """The names a request may ask for: the model's own, then the adapters'."""
        return self.base_names + self.adapter_names

    @property
    def adapter_names(self) -> tuple[str, ...]:
        return () if self.adapters is None else self.adapters.names()

    def ticket(self, generation: Generation, sink: Sink) -> Ticket:
        """A request that is ready to begin: checked against the context and by vLLM, not yet queued.

        :raises PromptTooLong: prompt and answer do not fit the context.
        :raises PromptOverLimit: no graph was compiled for a prompt of this length.
        :raises InvalidField: a sampling parameter that vLLM refuses, or more tokens than one request may have.
        """
        room = self.max_model_len - len(generation.prompt)
        sampling = generation.sampling
        sampling_check.check(sampling, self.limits)
        if sampling.grammar is not None:
            grammar_limits.check(_read(sampling.grammar), sampling.grammar.field)
        self.check_stop_tokens(sampling.stop_token_ids)
        if self.max_prompt is not None and len(generation.prompt) > self.max_prompt:
            raise PromptOverLimit(len(generation.prompt), self.max_prompt)
        if room < 1 or (sampling.max_tokens or 1) > room:
            param = "prompt" if room < 1 else sampling.max_tokens_field
            raise PromptTooLong(len(generation.prompt), sampling.max_tokens, self.max_model_len, param)
        self.check_max_tokens(sampling.max_tokens, sampling.max_tokens_field)
        cap = self.max_output_tokens or room
        max_tokens = sampling.max_tokens or min(room, cap, self._max_tokens_cap or room)
        params = self._api.sampling_params(sampling, max_tokens, self._defaults, generation.stream)
        return Ticket(self, generation, params, sink)

    def check_stop_tokens(self, tokens: Sequence[int]) -> None:
        """:raises InvalidField: one past the vocabulary, which with min_tokens ends vLLM's engine (0.16.0)."""
        for token in tokens:
            if token >= self.prompts.vocab_size:
                raise InvalidField("stop_token_ids", f"{token} is outside 0 to {self.prompts.vocab_size - 1}")

    def check_max_tokens(self, tokens: int | None, field: str) -> None:
        """:raises InvalidField: more than one request may ask for (`max_output_tokens`)."""
        if self.max_output_tokens is not None and (tokens or 1) > self.max_output_tokens:
            problem = f"{tokens} is more than this endpoint generates for one request, {self.max_output_tokens}"
            raise InvalidField(field, problem)

    def require_serving(self) -> Serving:
        """vLLM's serving classes over this engine.

        :raises PlainTextOnly: this version's are not known here.
        """
        if self.serving is None:
            raise PlainTextOnly
        return self.serving

    def serving_ticket(self, prepared: Prepared, sink: Sink, keep: Callable[[Whole], None]) -> ServingTicket:
        """A request that vLLM's serving classes answer, ready to begin."""
        return ServingTicket(self, self.require_serving(), prepared, sink, keep)

    async def add(self, generation: Generation, params: Any, ticket: Ticket) -> None:
        """Queues a ticket's request; on the loop."""
        try:
            lora = None if ticket.adapter is None else ticket.adapter.request
            ticket.internal_id = await self._api.add_request(self._llm, generation, params, ticket, lora)
        except Exception as error:
            ticket.fail(self._api.as_endpoint_error(error))
            return
        if ticket.cancelled and ticket.internal_id is not None:
            await self._api.abort(self._llm, ticket.internal_id)

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
        for ticket in list(self.serving_tickets):
            ticket.fail(error)
        self._api.fail_all(self._llm, error)

    def release(self, seat: int, timeout: float = 2.0) -> int:
        """Frees what the front end on a seat held, which has ended; returns how many requests. Of the owner.

        :raises Exception: the core has ended, or does not answer.
        """
        from handler.engine.vllm_api import front_ends

        return self.loop.run(front_ends.release(self._llm, seat), timeout)

    async def _watch_core(self, pid: int) -> None:
        """vLLM's client sees the end of a core only where it has started it."""
        from handler.engine.vllm_api import front_ends

        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            front_ends.core_ended(self._llm)
            return

        def ended() -> None:
            self.loop.loop.remove_reader(descriptor)
            os.close(descriptor)
            front_ends.core_ended(self._llm)

        self.loop.loop.add_reader(descriptor, ended)

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


def _read(grammar: Grammar) -> object:
    """What its limits are about: the texts in a schema, or the expression itself."""
    try:
        return json.loads(grammar.text) if grammar.kind == "json" else grammar.text
    except ValueError:
        return grammar.text


def _serving_api() -> ModuleType | None:
    """The module over vLLM's serving classes; None where this version of vLLM has them elsewhere."""
    from handler.engine.vllm_api.serving_log import root_kept

    try:
        with root_kept():
            from handler.engine.vllm_api import serving
    except ImportError as error:
        logger.warning("plain text only: vLLM's serving classes are not where 0.16 has them (%s)", error)
        return None
    return serving
