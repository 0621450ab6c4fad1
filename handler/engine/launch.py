"""Starts an engine from a plan."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from handler.config.endpoint_config import EndpointConfig
from handler.engine.contract import EngineFacts, EngineGeneration, EngineSettings
from handler.engine.core_end import core_watched
from handler.engine.engine import Engine
from handler.engine.event_loop import LoopThread
from handler.engine.fast_import import without_collection
from handler.engine.frontend_args import front_end
from handler.engine.generation.request_cost import CostLimits
from handler.engine.generation.request_limits import RequestLimits
from handler.engine.generations import generation
from handler.engine.queue_limits import queue_limits
from handler.engine.waiting_process import WaitingProcess
from handler.neuron.buckets.compiled_buckets import planned_buckets
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.length_limits import length_limits
from handler.neuron.sampling_limits import sampling_limits

Stage = Callable[[str], None]


def import_vllm(*, core: bool = False) -> None:
    """As `EngineGeneration.preload`, for the installed vLLM."""
    with without_collection():
        generation().preload(core=core)


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
    vllm = generation()
    front = front_end(config, Path(str(plan.engine_args["model"])))
    arguments = vllm.parse(plan.engine_args, config, front)
    settings = EngineSettings(
        queue=partial(queue_limits, config, plan),
        cost=CostLimits.of(config),
        front_end=front,
        lengths=length_limits(plan),
        max_output=config.max_output_tokens,
        further=further,
    )
    stage("start engine")
    with nullcontext() if waiting is None else waiting.becomes_core(), core_watched(died):
        return _engine(vllm, arguments, settings, plan, config, loop)


def _engine(
    vllm: EngineGeneration,
    arguments: Any,
    settings: EngineSettings,
    plan: EnginePlan,
    config: EndpointConfig,
    loop: LoopThread,
) -> Engine:
    """Starts vLLM's client, and makes an `Engine` of it."""
    adapter = loop.run(vllm.start(arguments, settings))
    limits = _limits(adapter.facts, plan, config)
    engine = Engine(adapter, loop, arguments.served_model_name, config.stall, limits, settings.front_end)
    engine.max_sequences = config.max_sequences
    engine.buckets = planned_buckets(plan, config, limits.max_model_len, engine.slots)
    return engine


def _limits(facts: EngineFacts, plan: EnginePlan, config: EndpointConfig) -> RequestLimits:
    """The limits of one request, from the plan's compiled graphs."""
    return RequestLimits(
        facts.context,
        facts.vocab_size,
        length_limits(plan).prompt,
        config.max_output_tokens,
        facts.default_max_tokens,
        sampling_limits(plan),
    )
