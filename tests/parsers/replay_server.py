"""The product over `ReplayCore`, with every parser: gunicorn, routes, vLLM's serving classes. Prints its port.

A request's `model` names the parsers: `hermes`, `hermes+qwen3` (with a reasoning parser) or `+qwen3` (without tools).
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import vllm
from tokenizers import AddedToken, Tokenizer
from vllm.engine.arg_utils import AsyncEngineArgs
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
from handler.engine.v1.serving import serving_start
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.length_limits import UNLIMITED
from handler.startup.serving_state import ServingState
from tests.container.scripted_server import ScriptedServer
from tests.parsers.replay_core import ReplayCore
from tests.parsers.reply_formats import ALL, TOKENS

TEMPLATE = "{{ messages[-1]['content'] }}"
CONTEXT = 20_000


class ParserServings:
    """As `Serving`, with one for each name of parsers. It waits for the loop, so it is made in another thread."""

    def __init__(self, loop: LoopThread) -> None:
        self._loop, self._directory = loop, Path(tempfile.mkdtemp())
        self._made = {name: loop.run(self._make(name)) for name in ALL}
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
        serving_start.check_parsers(arguments, front)
        core = ReplayCore()
        with patch.object(EngineCoreClient, "make_async_mp_client", lambda **given: core):
            config = arguments.create_engine_config()
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
    engine = Engine(servings.adapter(), state.loop, list(ALL), 60.0, RequestLimits(CONTEXT, 10_000))
    engine.serving = servings  # type: ignore[assignment]  # a stand-in
    engine.traits = replace(servings.first.traits, plain_chat=False)
    state.engine = engine
    state.lifecycle.ready()


if __name__ == "__main__":
    worker.start = start  # type: ignore[attr-defined]  # the name under which it has imported it
    sys.argv[1:] = []
    ReplayServer().run()
