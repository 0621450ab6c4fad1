"""Several clients of one engine core, by the way of vLLM's `--api-server-count`. Written for, and seen on, 0.16.0.

The core connects to a pair of addresses for each client, which the client binds (v1/engine/core_client.py, `MPClient`).
It greets each address once: a second process at the same address would wait for ever. So there are more addresses than
clients, and a client that takes a dead one's place gets addresses of its own.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.engine.utils import launch_core_engines
from vllm.v1.executor import Executor

from handler.engine.core_clients import CoreClients
from handler.engine.prefill_pace import PaceLimit
from handler.engine.vllm_api.core.shared_core import run_shared_core
from handler.engine.vllm_api.tokens import token_path
from handler.errors import SettingError


def launch(
    arguments: AsyncEngineArgs, count: int, setting: str, pace: PaceLimit | None = None
) -> tuple[AsyncLLM, CoreClients]:
    """A core with `count` seats, and the client on the first of them, which owns the core. On the loop that serves it.

    :param setting: what asked for it, for messages.
    :raises SettingError: several cores.
    :raises Exception: whatever vLLM raises when it cannot start; the core has printed why.
    """
    arguments._api_process_count, arguments._api_process_rank = count, -1
    config = arguments.create_engine_config(UsageContext.ENGINE_CONTEXT)
    if config.parallel_config.data_parallel_size > 1:
        raise SettingError(setting, "it does not go with data parallelism", "Leave one of the two out.")
    shared = patch.object(EngineCoreProc, "run_engine_core", staticmethod(run_shared_core))
    executor, stats = Executor.get_class(config), not arguments.disable_log_stats
    with shared, launch_core_engines(config, executor, stats, count) as (manager, _, addresses):
        pass  # it waits for the core at its end
    try:
        llm = _client(config, arguments, addresses.inputs[0], addresses.outputs[0], count, 0, pace)
        llm.engine_core.resources.engine_manager = manager
        llm.engine_core.start_engine_core_monitor()
    except BaseException:
        manager.close()
        raise
    return llm, CoreClients(tuple(addresses.inputs), tuple(addresses.outputs))


def join(arguments: AsyncEngineArgs, seats: CoreClients, index: int, pace: PaceLimit | None = None) -> AsyncLLM:
    """The client on a seat that nobody had before. On the loop that will serve it."""
    arguments._api_process_count, arguments._api_process_rank = seats.count, index
    config = arguments.create_engine_config(UsageContext.ENGINE_CONTEXT)
    return _client(config, arguments, seats.inputs[index], seats.outputs[index], seats.count, index, pace)


def _client(
    config: Any, arguments: AsyncEngineArgs, to: str, back: str, count: int, index: int, pace: PaceLimit | None
) -> AsyncLLM:
    llm = AsyncLLM.from_vllm_config(
        vllm_config=config,
        enable_log_requests=arguments.enable_log_requests,
        disable_log_stats=arguments.disable_log_stats,
        client_addresses={"input_address": to, "output_address": back},
        client_count=count,
        client_index=index,
    )
    token_path.TokenPath.install(llm, pace)
    return llm


async def release(llm: AsyncLLM, index: int) -> int:
    """Frees what a client that has ended holds in the core; returns how many requests that was."""
    return int(await llm.engine_core.call_utility_async("release_client", index))


def core_ended(llm: AsyncLLM) -> None:
    """Tells a client that did not start the core, and so cannot see it, that it is gone. On the loop."""
    resources = llm.engine_core.resources
    resources.engine_dead = True
    if resources.output_queue_task is not None:
        resources.output_queue_task.cancel()
