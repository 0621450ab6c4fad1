"""The adapter of V0, vLLM's first engine. Tested on 0.9.1.

vLLM runs it in a process of its own (`MQLLMEngineClient`), or in this one if the configuration has pipeline parallelism
(`AsyncLLMEngine`). Its OpenAI serving classes are in other modules than those of 0.16, so plain text is served. A
grammar would be compiled in this process (engine/multiprocessing/client.py), so none is accepted. vLLM's metrics are in
the engine's process.

Importing this module imports vLLM.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from multiprocessing import active_children
from typing import Any

from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.engine.async_llm_engine import AsyncEngineDeadError
from vllm.engine.multiprocessing import MQEngineDeadError
from vllm.entrypoints.openai.api_server import build_async_engine_client_from_engine_args
from vllm.platforms import current_platform

from handler.config.endpoint_config import EndpointConfig
from handler.engine.contract import EngineSettings
from handler.engine.engine_client import engine_arguments, model_inspection
from handler.engine.engine_client.client_adapter import ClientAdapter
from handler.engine.engine_client.client_queue import ClientQueue
from handler.engine.engine_client.processes.engine_processes import EngineProcesses
from handler.engine.frontend_args import FrontendSettings
from handler.engine.generation.generation import Generation, StageListener
from handler.errors import EngineFailed
from handler.json_value import Json

# Seconds for vLLM to end the engine's process.
SHUTDOWN_SECONDS = 10.0


def preload(*, core: bool = False) -> None:
    """As `EngineGeneration.preload`. This module has imported vLLM."""
    os.environ["VLLM_USE_V1"] = "0"  # 0.9 has the beginnings of V1, and would take it
    if core and current_platform.is_cpu():
        import vllm.worker.cpu_worker  # noqa: F401


def parse(arguments: Mapping[str, Json], config: EndpointConfig, front_end: FrontendSettings) -> AsyncEngineArgs:
    """As `EngineGeneration.parse`. Plain text has no parsers."""
    model_inspection.inspect_here()
    # The CPU line fixes the library for grammars by an argument of later versions. The Neuron platform makes a block as
    # long as a sequence by itself, and vLLM's parser takes no such length.
    left_out = {"structured_outputs_config"}
    if current_platform.is_neuron() and arguments.get("block_size") == arguments.get("max_model_len"):
        left_out.add("block_size")
    known = {name: value for name, value in arguments.items() if name not in left_out}
    return engine_arguments.engine_args(known, config)


async def start(arguments: AsyncEngineArgs, settings: EngineSettings) -> V0Adapter:
    """As `EngineGeneration.start`."""
    before = active_children()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(build_async_engine_client_from_engine_args(arguments))
        # `AsyncLLMEngine` has them as coroutines only.
        client.vllm_config, client.model_config = await client.get_vllm_config(), await client.get_model_config()
        tokenizer = await client.get_tokenizer()
        adapter = V0Adapter(client, tokenizer, EngineProcesses.since(before), settings)
        adapter.stack = stack.pop_all()
    return adapter


class V0Adapter(ClientAdapter):
    """A client of V0.

    :ivar stack: ends the engine's process.
    """

    dead = (MQEngineDeadError, AsyncEngineDeadError)
    _queue: ClientQueue

    def __init__(self, client: Any, tokenizer: Any, processes: EngineProcesses, settings: EngineSettings) -> None:
        super().__init__(client, tokenizer, processes, settings, queue_calls=True)
        self.stack = AsyncExitStack()
        self._loop = asyncio.get_running_loop()
        self._core_ended = False
        # vLLM itself notices within 20 s.
        for core in processes.cores:
            self._loop.add_reader(core.sentinel, self._end)

    def _end(self) -> None:
        self._core_ended = True
        self._forget_cores()
        error = EngineFailed("its process ended")
        self._queue.queue.end(error)
        for task, sink in list(self._running.values()):
            sink.fail(error)
            task.cancel()

    def _forget_cores(self) -> None:
        for core in self._processes.cores:
            self._loop.remove_reader(core.sentinel)

    def is_dead(self) -> bool:
        return self._core_ended or super().is_dead()

    async def add(
        self, generation: Generation, params: SamplingParams, sink: StageListener, lora: Any = None
    ) -> str | None:
        if self._core_ended:
            raise EngineFailed("its process ended")
        return await super().add(generation, params, sink, lora)

    async def remove_lora(self, identity: int) -> None:
        """V0's client has no such verb: the engine keeps the adapters that were used last."""

    def shutdown(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(SHUTDOWN_SECONDS)

    async def _close(self) -> None:
        self._forget_cores()
        await self.stack.aclose()
