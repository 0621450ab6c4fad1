"""Starts an engine from a plan."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from handler.config.endpoint_config import EndpointConfig
from handler.engine.core_watch import core_watched
from handler.engine.engine import Engine
from handler.engine.event_loop import LoopThread
from handler.engine.fast_import import without_collection
from handler.engine.frontend_args import front_end
from handler.engine.generation.request_cost import CostLimits
from handler.engine.generation.request_limits import RequestLimits
from handler.engine.queue_limits import QueueLimits, queue_limits
from handler.engine.waiting_process import WaitingProcess
from handler.neuron.buckets.planned_buckets import planned_buckets
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.length_limits import length_limits
from handler.neuron.sampling_limits import sampling_limits

Stage = Callable[[str], None]
logger = logging.getLogger(__name__)


def import_vllm(*, core: bool = False) -> None:
    """Imports vLLM and its serving classes, which takes 7 to 10 s. The plan's environment must be set before.

    :param core: also imports what the engine core needs, for a fork of this process.
    """
    with without_collection():
        from handler.engine.vllm_api.core import core as vllm_api  # noqa: F401
        from handler.engine.vllm_api.core import engine_arguments, model_inspection  # noqa: F401

        _serving_api()
        if core:
            from handler.engine.vllm_api.processes import core_imports  # noqa: F401


def launch(
    plan: EnginePlan,
    config: EndpointConfig,
    loop: LoopThread,
    stage: Stage = lambda name: None,
    *,
    further: bool = False,
    imports: Callable[[], WaitingProcess | None] = import_vllm,
    died: Callable[[str], object] = lambda reason: None,
) -> Engine:
    """Imports vLLM, starts the engine core and waits until it accepts requests. 20 to 60 s on CPU.

    :param plan: vLLM's engine arguments and environment.
    :param config: names the setting behind a rejected argument, in messages, and says how long a stall is.
    :param loop: serves the engine.
    :param stage: called with the name of each stage when it begins.
    :param further: this process has other engines already.
    :param imports: returns when vLLM is imported. Another thread may do that already. It may return a process that
        becomes the engine core.
    :param died: as `core_watched`'s.
    :raises SettingError: vLLM's parser rejects an engine argument.
    :raises Exception: any error that vLLM raises when it cannot start.
    """
    stage("import vLLM")
    waiting = imports()
    from handler.engine.vllm_api.core import core as vllm_api
    from handler.engine.vllm_api.core import engine_arguments, model_inspection

    model_inspection.inspect_here()
    engine_args, limits = engine_arguments.engine_args(plan.engine_args, config), partial(queue_limits, config, plan)
    build = partial(vllm_api.build_engine, engine_args, further=further)
    with nullcontext() if waiting is None else waiting.becomes_core(), core_watched(died):
        return _engine(plan, config, loop, engine_args, build, limits, stage)


def _engine(
    plan: EnginePlan,
    config: EndpointConfig,
    loop: LoopThread,
    engine_args: Any,
    build: Callable[[], Any],
    queue: Callable[[int], QueueLimits],
    stage: Stage,
) -> Engine:
    """Starts vLLM's client and its serving classes, and makes an `Engine` of them.

    :param build: makes vLLM's client.
    """
    from handler.engine.vllm_api.core import core as vllm_api
    from handler.engine.vllm_api.core import logprob_texts, request_gate
    from handler.engine.vllm_api.grammar import grammar_guard

    front = front_end(config, Path(engine_args.model))
    serving_api = _serving_api()
    if serving_api is not None:
        serving_api.check_parsers(engine_args, front)
    stage("start engine")
    llm = build()
    try:
        loop.run(vllm_api.attach(llm, queue))
        domains = vllm_api.allowed_media_domains(llm)
        limits = _limits(llm, plan, config)
        guard = grammar_guard.install(llm)
        logprob_texts.install()
        gate_limits = request_gate.GateLimits(CostLimits.of(config), limits.vocab_size, limits.max_prompt)
        request_gate.install(llm, gate_limits, _untried if guard is None else guard.require_tried)
        serving = None
        if serving_api is not None:
            serving = loop.run(serving_api.start(llm, engine_args, front, config.max_output_tokens))
    except BaseException:
        vllm_api.shutdown(llm)
        raise
    engine = Engine(llm, loop, engine_args.served_model_name, config.stall, limits, front)
    if serving is not None:
        engine.serving, engine.traits = serving, serving.traits
    engine.max_sequences, engine.allowed_media_domains = config.max_sequences, domains
    engine.buckets = planned_buckets(plan, config, limits.max_model_len, engine.slots)
    return engine


def _limits(llm: Any, plan: EnginePlan, config: EndpointConfig) -> RequestLimits:
    """The limits of one request, from the plan's compiled graphs. vLLM's own checks get the same limits."""
    from handler.engine.vllm_api.core import core as vllm_api

    lengths, context = length_limits(plan), vllm_api.max_model_len(llm)
    if lengths.sequence is not None:
        vllm_api.limit_length(llm, lengths.sequence)
    return RequestLimits(
        min(context, lengths.sequence or context),
        vllm_api.vocab_size(llm),
        lengths.prompt,
        config.max_output_tokens,
        vllm_api.default_max_tokens(llm),
        sampling_limits(plan),
    )


def _serving_api() -> ModuleType | None:
    """The module that wraps vLLM's serving classes. None if the installed vLLM has them in other modules."""
    from handler.engine.vllm_api.serving.serving_log import root_logger_kept

    try:
        with root_logger_kept():
            from handler.engine.vllm_api.serving import serving_start
    except ImportError as error:
        logger.warning(
            "only plain text is served: this vLLM's serving classes are not in the modules of vLLM 0.16 (%s)", error
        )
        return None
    return serving_start


def _untried(params: object) -> None:
    """Grammars are not tried before the engine compiles them."""
