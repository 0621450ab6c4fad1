"""A parser whose tokens the model's tokenizer does not have ends the start, before the core is started."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest

import sample_model
from handler.config.endpoint_config import EndpointConfig
from handler.engine.contract import EngineSettings
from handler.engine.frontend_args import FrontendSettings
from handler.engine.generation.request_cost import CostLimits
from handler.engine.queue_limits import queue_limits
from handler.errors import SettingError
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.length_limits import UNLIMITED
from handler.start_failure import fix_for

pytestmark = pytest.mark.engine
MODEL = str(sample_model.path())


@pytest.mark.parametrize(
    ("setting", "parser"), [("TOOL_CALL_PARSER", "deepseek_v3"), ("REASONING_PARSER", "deepseek_r1")]
)
def test_it_names_the_setting(setting: str, parser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.engine.core_client import EngineCoreClient

    from handler.engine.v1 import adapter

    tools = setting == "TOOL_CALL_PARSER"
    front = FrontendSettings(enable_auto_tool_choice=tools, tool_call_parser=parser if tools else None)
    config = EndpointConfig(model=MODEL)
    settings = EngineSettings(
        partial(queue_limits, config, EnginePlan("cpu", {})), CostLimits.of(config), front, UNLIMITED
    )
    monkeypatch.setattr(EngineCoreClient, "make_async_mp_client", lambda **given: pytest.fail("the core was started"))
    arguments = adapter.parse(
        {"model": MODEL} if tools else {"model": MODEL, "reasoning_parser": parser}, config, front
    )
    with pytest.raises((SettingError, RuntimeError), match=r"could not locate .* in the tokenizer") as raised:
        asyncio.run(adapter.start(arguments, settings))
    named = str(raised.value) if isinstance(raised.value, SettingError) else fix_for(str(raised.value))
    assert f"ENDPOINT_{setting}" in named


@pytest.mark.parametrize("setting", ["TOOL_PARSER_PLUGIN", "REASONING_PARSER_PLUGIN"])
def test_a_plugin_whose_file_is_not_there_is_named_before_the_parser(setting: str) -> None:
    """vLLM logs it and goes on, so that the parser was named, which only the file has."""
    from handler.engine.v1.serving.configured_parsers import check_names

    tools = setting == "TOOL_PARSER_PLUGIN"
    front = FrontendSettings(tool_call_parser="mine", tool_parser_plugin="/nothing.py" if tools else None)
    arguments = SimpleNamespace(reasoning_parser_plugin=None if tools else "/nothing.py", reasoning_parser=None)
    with pytest.raises(SettingError, match=f"{setting}: there is no file '/nothing.py'"):
        check_names(arguments, front)
