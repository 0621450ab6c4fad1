"""Several clients of one engine core, with vLLM's mechanism for `--api-server-count`. Written and tested for 0.16.0.

The core connects to a pair of addresses for each client, which the client binds (v1/engine/core_client.py, `MPClient`).
It sends its greeting to each address once, so a second process at the same address would wait forever. So there are
more addresses than clients, and a client that replaces a dead one gets addresses of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.engine.utils import launch_core_engines
from vllm.v1.executor import Executor

from handler.engine.core_clients import CoreAddresses
from handler.engine.core_queue import QueueLimits
from handler.engine.vllm_api.core.core import install_queue
from handler.engine.vllm_api.core.shared_core import run_shared_core
from handler.errors import SettingError


def launch(arguments: AsyncEngineArgs, count: int, setting: str, limits: Callable[[int], QueueLimits]) -> AsyncLLM:
    """Starts a core for `count` clients, and makes the first client, which owns the core. Call on its loop.

    The addresses of all clients are in the client's `core_addresses`.

    :param setting: the setting that requests several front ends, for messages.
    :raises SettingError: the arguments request several cores.
    :raises Exception: any error that vLLM raises when it cannot start. The core has printed the reason.
    """
    arguments._api_process_count, arguments._api_process_rank = count, -1
    config = arguments.create_engine_config(UsageContext.ENGINE_CONTEXT)
    if config.parallel_config.data_parallel_size > 1:
        raise SettingError(setting, "it cannot be combined with data parallelism", "Remove one of the two.")
    shared = patch.object(EngineCoreProc, "run_engine_core", staticmethod(run_shared_core))
    executor, stats = Executor.get_class(config), not arguments.disable_log_stats
    with shared, launch_core_engines(config, executor, stats, count) as (manager, _, addresses):
        pass  # at its end, the context manager waits for the core
    try:
        shared_addresses = CoreAddresses(tuple(addresses.inputs), tuple(addresses.outputs))
        llm = _client(config, arguments, shared_addresses, 0, limits)
        llm.core_addresses = shared_addresses
        llm.engine_core.resources.engine_manager = manager
        llm.engine_core.start_engine_core_monitor()
    except BaseException:
        manager.close()
        raise
    return llm


def join(
    arguments: AsyncEngineArgs, addresses: CoreAddresses, index: int, limits: Callable[[int], QueueLimits]
) -> AsyncLLM:
    """Makes a further client, with an index that no client had before. Call on the loop that will serve it."""
    arguments._api_process_count, arguments._api_process_rank = addresses.count, index
    config = arguments.create_engine_config(UsageContext.ENGINE_CONTEXT)
    return _client(config, arguments, addresses, index, limits)


def _client(
    config: Any, arguments: AsyncEngineArgs, addresses: CoreAddresses, index: int, limits: Callable[[int], QueueLimits]
) -> AsyncLLM:
    llm = AsyncLLM.from_vllm_config(
        vllm_config=config,
        enable_log_requests=arguments.enable_log_requests,
        disable_log_stats=arguments.disable_log_stats,
        client_addresses={"input_address": addresses.inputs[index], "output_address": addresses.outputs[index]},
        client_count=addresses.count,
        client_index=index,
    )
    install_queue(llm, limits)
    return llm


async def release(llm: AsyncLLM, index: int) -> int:
    """Ends the requests of a client that has ended, in the core, and returns how many there were."""
    return int(await llm.engine_core.call_utility_async("release_client", index))


def core_ended(llm: AsyncLLM) -> None:
    """Tells a client that the core has ended, if the client did not start the core itself. Call on the loop."""
    resources = llm.engine_core.resources
    resources.engine_dead = True
    if resources.output_queue_task is not None:
        resources.output_queue_task.cancel()
