"""Starts an engine from a plan, by the adapter for the installed vLLM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final, cast

from handler.config.endpoint_config import EndpointConfig
from handler.engine.contract import EngineGeneration, EngineSettings
from handler.engine.core_end import started
from handler.engine.engine import Engine
from handler.engine.event_loop import LoopThread
from handler.engine.fast_import import without_collection
from handler.engine.frontend_args import front_end
from handler.engine.generation.request_cost import CostLimits
from handler.engine.generation.request_limits import RequestLimits
from handler.engine.queue_limits import queue_limits
from handler.engine.waiting_process import WaitingProcess
from handler.neuron.buckets.compiled_buckets import planned_buckets
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.length_limits import length_limits
from handler.neuron.planning.vllm_versions import public
from handler.neuron.sampling_limits import sampling_limits

Stage = Callable[[str], None]
# The first version of each generation, the newest first. The modules import vLLM.
GENERATIONS: Final = (
    ((0, 11), "handler.engine.v1.adapter"),
    ((0, 0), "handler.engine.v0.adapter"),
)


def generation() -> EngineGeneration:
    """The generation of the installed vLLM, with a public interface that this software knows."""
    parts = public(installed_versions().get("vllm", "")).split(".")[:2]
    number = tuple(map(int, parts)) if len(parts) == 2 and all(map(str.isdecimal, parts)) else GENERATIONS[0][0]
    module = next(module for first, module in GENERATIONS if number >= first)
    return cast(EngineGeneration, import_module(module))


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
) -> Engine:
    """Imports vLLM, starts the engine core and waits until it accepts requests. 20 to 60 s on CPU.

    :param plan: vLLM's engine arguments and environment.
    :param config: names the setting behind a rejected argument, in messages, and says how long a stall is.
    :param loop: serves the engine.
    :param stage: called with the name of each stage when it begins.
    :param further: this process has other engines already.
    :param imports: returns when vLLM is imported. Another thread may do that already. It may return a process that
        becomes the engine core.
    :raises SettingError: vLLM's parser rejects an engine argument.
    :raises CoreEnded: the core has ended, and vLLM has not noticed.
    :raises Exception: any error that vLLM raises when it cannot start.
    """
    stage("import vLLM")
    waiting = imports()
    vllm = generation()
    front = front_end(config, Path(str(plan.engine_args["model"])))
    arguments = vllm.parse(plan.engine_args, config, front)
    lengths = length_limits(plan)
    settings = EngineSettings(
        queue=partial(queue_limits, config, plan),
        cost=CostLimits.of(config),
        front_end=front,
        lengths=lengths,
        max_output=config.max_output_tokens,
        further=further,
    )
    stage("start engine")
    with nullcontext() if waiting is None else waiting.becomes_core():
        adapter = started(loop, vllm.start(arguments, settings))
    facts = adapter.facts
    limits = RequestLimits(
        facts.context,
        facts.vocab_size,
        lengths.prompt,
        config.max_output_tokens,
        facts.default_max_tokens,
        sampling_limits(plan),
    )
    engine = Engine(adapter, loop, arguments.served_model_name, config.stall, limits, front)
    engine.max_sequences = config.max_sequences
    engine.buckets = planned_buckets(plan, config, limits.max_model_len, engine.slots)
    return engine


@contextmanager
def stopped_on_failure(engine: Engine) -> Iterator[None]:
    """Within it, a failure ends the engine. If its core has ended by then, that is the failure.

    :raises CoreEnded: the core has ended.
    """
    try:
        yield
    except BaseException as error:
        ended = engine.end_of_core()
        engine.stop()
        if ended is None:
            raise
        raise ended from error
