"""The configured tool and reasoning parsers, checked before the engine's core starts. Tested on 0.16.0 to 0.32.0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vllm.config import VllmConfig
from vllm.reasoning import ReasoningParserManager
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.tool_parsers import ToolParserManager

from handler.engine.frontend_args import FrontendSettings
from handler.errors import SettingError


def check_names(arguments: Any, front_end: FrontendSettings) -> None:
    """Loads the configured parser plugins, and checks that the configured parsers exist. Call before the engine starts.

    :raises SettingError: a plugin's file does not exist, which vLLM only logs, or a parser. The error lists those that
        do.
    """
    tools, reasoning = front_end.tool_parser_plugin, arguments.reasoning_parser_plugin
    plugins = {"ENDPOINT_TOOL_PARSER_PLUGIN": tools, "SM_VLLM_REASONING_PARSER_PLUGIN": reasoning}
    for setting, plugin in plugins.items():
        if plugin and plugin.endswith(".py") and not Path(plugin).is_file():
            raise SettingError(setting, f"there is no file '{plugin[:200]}'", "Give the path of a file, or remove it.")
    if front_end.tool_parser_plugin:
        ToolParserManager.import_tool_parser(front_end.tool_parser_plugin)
    if arguments.reasoning_parser_plugin:
        ReasoningParserManager.import_reasoning_parser(arguments.reasoning_parser_plugin)
    for name, (parser, manager) in _by_setting(front_end.tool_call_parser, arguments.reasoning_parser).items():
        if parser not in manager.list_registered():
            known = ", ".join(sorted(manager.list_registered()))
            raise SettingError(name, f"there is no '{parser[:80]}'", f"Use one of {known}.")


def check_tokens(config: VllmConfig, front_end: FrontendSettings) -> None:
    """Makes each configured parser once with the model's tokenizer. Call before the engine's core starts.

    Some parsers look for tokens of their models. vLLM makes a parser for each request, and where such a token is
    missing, every chat fails (0.16.0 to 0.29.0).

    :raises SettingError: a parser cannot be made.
    """
    parsers = _by_setting(front_end.tool_call_parser, config.structured_outputs_config.reasoning_parser)
    if not parsers or config.model_config.runner_type == "pooling":
        return
    tokenizer = cached_tokenizer_from_config(config.model_config)
    if tokenizer is None:
        return
    for name, (parser, manager) in parsers.items():
        kind = manager.get_tool_parser if manager is ToolParserManager else manager.get_reasoning_parser
        try:
            kind(parser)(tokenizer)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            problem = f"'{parser}' cannot be used with this model's tokenizer ({reason})"
            raise SettingError(name, problem, "Use the parser of the model's family (docs/tool-calls.md).") from error


def _by_setting(tools: str | None, reasoning: str | None) -> dict[str, tuple[str, Any]]:
    """The configured parsers and their managers, by setting."""
    chosen = {
        "ENDPOINT_TOOL_CALL_PARSER": (tools, ToolParserManager),
        "ENDPOINT_REASONING_PARSER": (reasoning, ReasoningParserManager),
    }
    return {name: (parser, manager) for name, (parser, manager) in chosen.items() if parser}
