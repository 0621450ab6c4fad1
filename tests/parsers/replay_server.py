"""The product over `ReplayCore`, with every parser: gunicorn, routes, vLLM's serving classes. Prints its port.

A request's `model` names the parsers: `hermes`, `hermes+qwen3` (with a reasoning parser) or `+qwen3` (without tools).
Arguments: these names. Default: all that vLLM 0.16.0 has.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import vllm
from tokenizers import AddedToken, Tokenizer
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core_client import EngineCoreClient

import sample_model
from container.server import worker
from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.engine.api_routes import Route
from handler.engine.contract import EngineSettings
from handler.engine.engine import Engine
from handler.engine.engine_client.processes.engine_processes import EngineProcesses
from handler.engine.event_loop import LoopThread
from handler.engine.frontend_args import FrontendSettings
from handler.engine.generation.request_cost import CostLimits
from handler.engine.generation.request_limits import RequestLimits
from handler.engine.queue_limits import queue_limits
from handler.engine.v1.accelerators import Accelerators, accelerators
from handler.engine.v1.adapter import V1Adapter
from handler.engine.v1.serving import configured_parsers, serving_start
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.length_limits import UNLIMITED
from handler.startup.serving_state import ServingState
from tests.container.scripted_server import ScriptedServer
from tests.parsers.reply_formats import ALL, TOKENS


class ReplayCore:
    """What `AsyncLLM` and `Engine` use of a core's client. It generates a given text, which a prompt holds: `STEP:HEX`.

    Everything in front of the core is vLLM's own: the chat template, the prompt's tokens, the detokenizer, the parsers
    and the serving classes. The text's bytes are hexadecimal in the prompt, because some parsers look for their marks
    in it. STEP is how many tokens each step of the core has, as with speculative decoding, or where a consumer is slow.

    :ivar llm: set by the maker.
    """

    llm: AsyncLLM
    engine_ranks_managed = (0,)
    resources = SimpleNamespace(engine_dead=False)

    def __init__(self) -> None:
        self._outputs: asyncio.Queue[EngineCoreOutputs] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def get_supported_tasks_async(self) -> tuple[str, ...]:
        return ("generate",)

    async def get_output_async(self) -> EngineCoreOutputs:
        return await self._outputs.get()

    async def add_request_async(self, request: EngineCoreRequest) -> None:
        task = asyncio.create_task(self._play(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _play(self, request: EngineCoreRequest) -> None:
        tokenizer: Any = self.llm.tokenizer
        step, _, script = tokenizer.decode(request.prompt_token_ids).partition(":")
        ids = tokenizer.encode(bytes.fromhex(script).decode(), add_special_tokens=False)
        ids.append(tokenizer.eos_token_id)
        size = int(step)
        for place in range(0, len(ids), size):
            last = place + size >= len(ids)
            output = EngineCoreOutput(
                request.request_id, ids[place : place + size], finish_reason=FinishReason.STOP if last else None
            )
            await self._taken(request.request_id)
            self._outputs.put_nowait(EngineCoreOutputs(outputs=[output]))
            await asyncio.sleep(0)

    async def _taken(self, name: str) -> None:
        """Waits until the serving classes have taken the step before, so that no two steps become one."""
        while not self._outputs.empty():
            await asyncio.sleep(0)
        state = self.llm.output_processor.request_states.get(name)
        while state is not None and state.queue is not None and state.queue.output is not None:
            await asyncio.sleep(0)

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        pass

    async def is_sleeping_async(self) -> bool:
        return False

    def shutdown(self) -> None:
        pass


TEMPLATE = "{{ messages[-1]['content'] }}"
CONTEXT = 20_000
NAMES = ("", *sys.argv[1:]) if sys.argv[1:] else ALL


class ParserServings:
    """As `Serving`, with one for each name of parsers. It waits for the loop, so it is made in another thread."""

    def __init__(self, loop: LoopThread) -> None:
        self._loop, self._directory = loop, Path(tempfile.mkdtemp())
        self._made = {name: loop.run(self._make(name)) for name in NAMES}
        self.first: Any = self._made[""]

    def fields(self, route: Route) -> frozenset[str]:
        names: frozenset[str] = self.first.fields(route)
        return names

    def request(self, route: Route, document: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        return self._made[str(document["model"])].request(route, document, headers)

    async def reply(self, prepared: Any) -> Any:
        return await self._made[prepared.model].reply(prepared)

    def adapter(self) -> V1Adapter:
        """Of the first engine."""
        config = EndpointConfig(model="replay")
        settings = EngineSettings(
            partial(queue_limits, config, EnginePlan("cpu", {})), CostLimits.of(config), FrontendSettings(), UNLIMITED
        )

        async def made() -> V1Adapter:
            return V1Adapter(self.first._llm, EngineProcesses(), settings, Accelerators())

        return self._loop.run(made())

    async def _make(self, name: str) -> Any:
        tools, _, reasoning = name.partition("+")
        model = self._model(name, TOKENS.get(tools, ()) + TOKENS.get(f"+{reasoning}", ()))
        arguments = AsyncEngineArgs(
            model=str(model), served_model_name=[name], max_model_len=CONTEXT, reasoning_parser=reasoning
        )
        front = FrontendSettings(
            chat_template=TEMPLATE, enable_auto_tool_choice=bool(tools), tool_call_parser=tools or None
        )
        configured_parsers.check_names(arguments, front)
        core = ReplayCore()
        with patch.object(EngineCoreClient, "make_async_mp_client", lambda **given: core):
            config = arguments.create_engine_config()
            if reasoning != "mistral":  # it wants Mistral's own tokenizer
                configured_parsers.check_tokens(config, front)
            core.llm = AsyncLLM(config, object, log_stats=False)
        return await serving_start.start(
            core.llm, arguments, front, parts=accelerators(vllm.__version__) or Accelerators()
        )

    def _model(self, name: str, tokens: tuple[str, ...]) -> Path:
        """The sample model, whose tokenizer has the tokens of a format, too. `!` marks a special one."""
        directory = self._directory / (name or "none").replace("/", "-")
        directory.mkdir()
        for file in sample_model.path().iterdir():
            if file.suffix != ".safetensors":
                shutil.copy(file, directory)
        config = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}))
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        added = dict.fromkeys(tokens)
        tokenizer.add_tokens([AddedToken(one, normalized=False) for one in added if not one.startswith("!")])
        tokenizer.add_special_tokens([AddedToken(one[1:], normalized=False) for one in added if one.startswith("!")])
        tokenizer.save(str(directory / "tokenizer.json"))
        return directory


class ReplayServer(ScriptedServer):
    """The scripted server, with the product's own limits."""

    def new_service(self) -> Service:
        self.service = Service.of(EndpointConfig(model="replay"))
        return self.service


def start(state: ServingState) -> None:
    """Instead of bringing a model and starting vLLM."""
    servings = ParserServings(state.loop)
    engine = Engine(servings.adapter(), state.loop, list(NAMES), 60.0, RequestLimits(CONTEXT, 10_000))
    engine.serving = servings  # type: ignore[assignment]  # a stand-in
    engine.traits = replace(servings.first.traits, plain_chat=False)
    state.engine = engine
    state.lifecycle.ready()


if __name__ == "__main__":
    worker.start = start  # type: ignore[attr-defined]  # the name under which it has imported it
    sys.argv[1:] = []
    ReplayServer().run()
