"""From a plan to a running engine: of this process's own core, or as a further front end of another's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from handler.config.endpoint_config import EndpointConfig
from handler.config.front_end_rules import FIELD, VARIABLE
from handler.engine.core_clients import SPARE_SEATS, CoreClient, CoreClients
from handler.engine.engine import Engine
from handler.engine.event_loop import LoopThread
from handler.engine.frontend_args import front_end
from handler.engine.generation.request_limits import RequestLimits
from handler.engine.prefill_pace import pace_limit
from handler.errors import SettingError
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.length_limits import length_limits
from handler.neuron.sampling_limits import sampling_limits

Stage = Callable[[str], None]
logger = logging.getLogger(__name__)


def launch(
    plan: EnginePlan, config: EndpointConfig, stage: Stage = lambda name: None, *, further: bool = False
) -> Engine:
    """Imports vLLM, starts its core and waits until it can be asked. 20 to 60 s on CPU.

    :param plan: what vLLM is started with.
    :param config: names the setting behind an argument that is refused; and how long a stall is.
    :param further: beside others in this process.
    :raises SettingError: an engine argument that vLLM's parser refuses.
    :raises Exception: whatever vLLM raises when it cannot start.
    """
    stage("import vLLM")
    from handler.engine.vllm_api.core import core as vllm_api

    engine_args, pace = vllm_api.engine_args(plan.engine_args, config), pace_limit(config, plan)
    if config.front_ends == 1:

        def alone() -> Any:
            return vllm_api.build_engine(engine_args, pace, further=further)

        return _made(plan, config, engine_args, alone, stage)
    setting = config.source(FIELD).name or VARIABLE
    if not vllm_api.DIRECT:
        raise SettingError(setting, "it is known of vLLM 0.16 only", "Leave it out, or set it to 1.")
    from handler.engine.vllm_api.core import shared_clients as front_ends

    seats: list[CoreClients] = []

    def shared() -> Any:
        llm, found = front_ends.launch(engine_args, config.front_ends + 1 + SPARE_SEATS, setting, pace)
        seats.append(found)
        return llm

    engine = _made(plan, config, engine_args, shared, stage)
    engine.seats = seats[0]
    return engine


def join(plan: EnginePlan, config: EndpointConfig, seat: CoreClient) -> Engine:
    """A further front end of an engine that another process has started and owns.

    :param plan: what that process started it with.
    :param seat: one that nobody had before.
    """
    from handler.engine.vllm_api.core import core as vllm_api
    from handler.engine.vllm_api.core import shared_clients as front_ends

    engine_args, pace = vllm_api.engine_args(plan.engine_args, config), pace_limit(config, plan)

    def joined() -> Any:
        return front_ends.join(engine_args, seat.seats, seat.index, pace)

    return _made(plan, config, engine_args, joined, seat=seat)


def _made(
    plan: EnginePlan,
    config: EndpointConfig,
    engine_args: Any,
    build: Callable[[], Any],
    stage: Stage = lambda name: None,
    seat: CoreClient | None = None,
) -> Engine:
    """:param build: makes vLLM's client; called on the loop that will serve it."""
    from handler.engine.vllm_api.core import core as vllm_api

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
        vllm_api.guard_grammars(llm)
        domains = vllm_api.allowed_media_domains(llm)
        limits = _limits(llm, plan, config)
        serving = None
        if serving_api is not None:
            starting = serving_api.Serving.start(llm, engine_args, front, config.max_output_tokens)
            serving = loop.run(starting)
    except BaseException:
        if llm is not None:
            vllm_api.shutdown(llm)
        loop.stop()
        raise
    engine = Engine(llm, loop, engine_args.served_model_name, config.stall, limits, front, seat)
    if serving is not None:
        engine.serving, engine.traits = serving, serving.traits
    engine.max_sequences, engine.allowed_media_domains = config.max_sequences, domains
    return engine


def _limits(llm: Any, plan: EnginePlan, config: EndpointConfig) -> RequestLimits:
    """Of the plan's graphs; vLLM's own checks are held to them too."""
    from handler.engine.vllm_api.core import core as vllm_api

    lengths, context = length_limits(plan), vllm_api.max_model_len(llm)
    vllm_api.hold_lengths(llm, lengths.prompt, lengths.sequence)
    return RequestLimits(
        min(context, lengths.sequence or context),
        vllm_api.vocab_size(llm),
        lengths.prompt,
        config.max_output_tokens,
        vllm_api.default_max_tokens(llm),
        sampling_limits(plan),
    )


def _serving_api() -> ModuleType | None:
    """The module over vLLM's serving classes; None where this version of vLLM has them elsewhere."""
    from handler.engine.vllm_api.serving.serving_log import root_kept

    try:
        with root_kept():
            from handler.engine.vllm_api.serving import serving_classes as serving
    except ImportError as error:
        logger.warning("plain text only: vLLM's serving classes are not where 0.16 has them (%s)", error)
        return None
    return serving
