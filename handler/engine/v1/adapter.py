"""The adapter of vLLM 0.11 and later. Tested on 0.11.0, 0.16.0, 0.24.0, 0.29.0 and 0.32.0.

Importing this module imports vLLM, which takes 8 to 11 s: import it inside functions, after the port is bound.

What is used beside `EngineClient`: `AsyncLLM.from_vllm_config`, `tokenizer`, `vllm_config`, `model_config`,
`remove_lora` and `shutdown`. `accelerators` lists which versions use more.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from asyncio import to_thread
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from multiprocessing import active_children
from typing import Any

import vllm
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform
from vllm.sampling_params import StructuredOutputsParams
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from handler.config.endpoint_config import EndpointConfig
from handler.engine.contract import EngineSettings
from handler.engine.core_end import CoreEnded, reaped
from handler.engine.engine_client import engine_arguments, engine_metrics, model_inspection
from handler.engine.engine_client.client_adapter import ClientAdapter
from handler.engine.engine_client.client_error import PROBLEM, REFUSALS
from handler.engine.engine_client.processes.engine_processes import EngineProcesses
from handler.engine.frontend_args import FrontendSettings
from handler.engine.generation.generation import Generation, Grammar, StageListener
from handler.engine.headless_node import CPU_WORKER_FIXES
from handler.engine.v1 import logprob_texts
from handler.engine.v1.accelerators import Accelerators, accelerators
from handler.engine.v1.grammar_guard import guard_of
from handler.errors import InvalidField
from handler.json_value import Json

try:
    # 0.24.0 and later: the form of a prompt that vLLM's renderer makes. Other forms are deprecated, and 0.32.0 passes
    # them to a thread first.
    from vllm.inputs import tokens_input
except ImportError:
    tokens_input = None

logger = logging.getLogger(__name__)
# 0.16.0 and later can skip copying parameters that nobody else holds. 0.11.0 always copies them.
OWNED: Mapping[str, bool] = {"skip_clone": True} if "skip_clone" in inspect.signature(SamplingParams).parameters else {}


def preload(*, core: bool = False) -> None:
    """As `EngineGeneration.preload`. This module has imported vLLM."""
    _serving()
    if core and current_platform.is_cpu():
        # The worker's module is named in vllm/platforms/cpu.py (`check_and_update_config`).
        import vllm.v1.engine.core
        import vllm.v1.worker.cpu_worker  # noqa: F401


def parse(arguments: Mapping[str, Json], config: EndpointConfig, front_end: FrontendSettings) -> AsyncEngineArgs:
    """As `EngineGeneration.parse`."""
    model_inspection.inspect_here()
    parsed = engine_arguments.engine_args(arguments, config)
    if current_platform.is_cpu() and not parsed.worker_extension_cls:
        parsed.worker_extension_cls = CPU_WORKER_FIXES
    if (serving := _serving()) is not None:
        serving.configured_parsers.check_names(parsed, front_end)
    return parsed


async def start(arguments: AsyncEngineArgs, settings: EngineSettings) -> V1Adapter:
    """As `EngineGeneration.start`. vLLM waits for its core in a thread, so that the loop serves meanwhile."""
    before = active_children()
    registry = None
    if settings.further:
        llm, registry = await to_thread(engine_metrics.with_own_registry, lambda: _client(arguments, settings))
    else:
        llm = await to_thread(_client, arguments, settings)
    known = accelerators(vllm.__version__)
    if known is None:
        logger.warning("vLLM %s is not known here: it is used by its public interface alone", vllm.__version__)
    processes = EngineProcesses.since(before)
    try:
        adapter = V1Adapter(llm, processes, settings, known or Accelerators())
        adapter.metrics_registry = registry
        if (serving := _serving()) is not None:
            adapter.serving = await serving.serving_start.start(
                llm, arguments, settings.front_end, settings.max_output, parts=adapter.parts
            )
    except EngineDeadError as error:
        ended = CoreEnded(await to_thread(reaped, processes.exit_statuses))
        llm.shutdown()
        raise ended from error
    except BaseException:
        llm.shutdown()
        raise
    return adapter


def _client(arguments: AsyncEngineArgs, settings: EngineSettings) -> AsyncLLM:
    """As `AsyncLLM.from_engine_args`. Before the core starts, the parsers are tried with the model's tokenizer."""
    context = UsageContext.ENGINE_CONTEXT
    config = arguments.create_engine_config(context)
    if (serving := _serving()) is not None:
        serving.configured_parsers.check_tokens(config, settings.front_end)
    return AsyncLLM.from_vllm_config(
        config,
        usage_context=context,
        enable_log_requests=arguments.enable_log_requests,
        disable_log_stats=arguments.disable_log_stats,
    )


class V1Adapter(ClientAdapter):
    """An `AsyncLLM`.

    :ivar parts: what this version is run with.
    :ivar guard: has grammars tried. None: they are not.
    """

    dead = (EngineDeadError,)

    def __init__(
        self, llm: AsyncLLM, processes: EngineProcesses, settings: EngineSettings, parts: Accelerators
    ) -> None:
        super().__init__(llm, llm.tokenizer, processes, settings, queue_calls=not parts.direct)
        self.parts = parts
        self.guard = llm.grammar_guard = guard_of(llm)
        self.facts = replace(self.facts, grammars=parts.grammars)
        self._sequences: Any = None
        self._path: Any = None
        self._loop = asyncio.get_running_loop()
        if parts.direct:
            from handler.engine.v1.queued_requests import QueuedRequests, check_inputs
            from handler.engine.v1.tokens import version_differences
            from handler.engine.v1.tokens.token_path import TokenPath

            logprob_texts.install()
            self._sequences = QueuedRequests(llm, settings.queue(self.facts.slots), self.guard)
            check_inputs(llm, self._gate, self.guard)
            version_differences.keep_end_token(llm)
            if version_differences.supports_path(llm):
                self._path = TokenPath.install(llm, self._sequences.queue, self._sequences.process_outputs)

    def _own_parameters(self, grammar: Grammar | None) -> Mapping[str, Any]:
        constraint = None if grammar is None else StructuredOutputsParams(**{grammar.kind: grammar.text})
        return {**OWNED, "structured_outputs": constraint}

    async def add(
        self, generation: Generation, params: SamplingParams, sink: StageListener, lora: Any = None
    ) -> str | None:
        ids = list(generation.prompt)
        prompt = {"prompt_token_ids": ids} if tokens_input is None else tokens_input(ids)
        try:
            if self.guard is not None:
                await self.guard.check(params, lambda: not sink.ended)
            if sink.ended:
                return None
            if self._path is not None and generation.scores is None:
                return await self._add_direct(generation, prompt, params, sink, lora)
            return self._begin(generation, prompt, params, sink, lora)
        except REFUSALS as error:
            raise self.as_endpoint_error(error, generation.sampling.grammar) from None

    async def _add_direct(
        self, generation: Generation, prompt: object, params: SamplingParams, sink: StageListener, lora: Any
    ) -> str:
        """Queues a request for text only, whose tokens take the direct path. Returns vLLM's internal id."""
        from handler.engine.v1.tokens.sink_collector import SinkCollector

        if self.client.errored:
            raise EngineDeadError
        processor, grammar = self.client.input_processor, generation.sampling.grammar
        request = processor.process_inputs(
            generation.request_id,
            prompt,
            params,
            lora_request=lora,
            trace_headers=generation.trace,
            supported_tasks=await self.client.get_supported_tasks(),
        )
        processor.assign_request_id(request)
        collector = SinkCollector(
            request.request_id,
            request.sampling_params.output_kind,
            sink,
            self.as_endpoint_error,
            apart=generation.apart,
            rejection=None if grammar is None else InvalidField(grammar.field, PROBLEM),
        )
        collector.times = generation.times
        await self.client._add_request(request, None, None, 0, collector)
        return str(request.request_id)

    async def abort(self, name: str) -> None:
        if name in self._running:
            await super().abort(name)
        else:
            await self.client.abort(name, internal=True)

    def unfinished(self) -> int:
        if self._sequences is None:
            return super().unfinished()
        processor = self.client.output_processor
        return int(processor.get_num_unfinished_requests()) + int(self._sequences.queue.waiting)

    def record_steps(self) -> None:
        if self._path is not None:
            self._path.statistics.record()

    def shutdown(self) -> None:
        if self.guard is not None:
            self.guard.close()
        super().shutdown()
        # vLLM's thread that has seen the core's end may be first, and closes the sockets later, or never if the loop
        # has ended by then. Whoever collects the garbage would then wait for ever for the end of their ZMQ context.
        resources = getattr(getattr(self.client, "engine_core", None), "resources", None)
        for name in ("input_socket", "output_socket"):
            if (socket := getattr(resources, name, None)) is not None:
                if self._loop.is_running():
                    self._loop.call_soon_threadsafe(socket.close, 0)
                else:
                    socket.close(0)
        # 0.16.0: vLLM leaves the tasks of its tokenizer behind (utils/async_utils.py).
        encoder = getattr(getattr(self.client, "renderer", None), "get_async_tokenizer", None)
        for task in () if encoder is None else encoder()._batcher_tasks:
            task.get_loop().call_soon_threadsafe(task.cancel)


@cache
def _serving() -> Any:
    """The package with vLLM's serving classes. None if the installed vLLM has them in other modules."""
    from handler.engine.v1.serving.serving_log import root_logger_kept

    try:
        with root_logger_kept():
            from handler.engine.v1 import serving
            from handler.engine.v1.serving import configured_parsers, serving_start  # noqa: F401  parts of `serving`
    except ImportError as error:
        logger.warning("only plain text is served: this vLLM's serving classes are not known here (%s)", error)
        return None
    return serving
