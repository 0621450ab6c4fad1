"""vLLM's front-end settings: chat template, tool calls, usage details. They act outside the engine core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.checkpoint.chat_template import configured_template
from handler.neuron.checkpoint.checkpoint_files import LocalFiles


@dataclass(frozen=True, slots=True)
class FrontendSettings:
    """Front-end settings with vLLM's names and meanings (vllm/entrypoints/openai/cli_args.py, FrontendArgs).

    :param chat_template: the text of the template. None: the model's own.
    """

    chat_template: str | None = None
    chat_template_content_format: str = "auto"
    default_chat_template_kwargs: Mapping[str, Json] = field(default_factory=dict)
    trust_request_chat_template: bool = False
    response_role: str = "assistant"
    enable_auto_tool_choice: bool = False
    exclude_tools_when_tool_choice_none: bool = False
    tool_call_parser: str | None = None
    tool_parser_plugin: str | None = None
    enable_prompt_tokens_details: bool = False
    enable_force_include_usage: bool = False
    return_tokens_as_token_ids: bool = False


def front_end(config: EndpointConfig, model: Path | None = None) -> FrontendSettings:
    """The front-end settings of a configuration.

    :param model: the model's directory, which may contain the chat template or the plugin.
    :raises SettingError: settings contradict each other, a file is missing, or a plugin is not allowed to run.
    """
    if config.enable_auto_tool_choice and not config.tool_call_parser:
        setting = _setting(config, "enable_auto_tool_choice")
        raise SettingError(setting, "it needs a parser for the model's tool calls", "Set ENDPOINT_TOOL_CALL_PARSER.")
    for name in ("tool_parser_plugin", "engine_args.reasoning_parser_plugin"):
        key = name.removeprefix("engine_args.")
        if (getattr(config, key, None) or config.engine_args.get(key)) and not config.trust_remote_code:
            fix = "Set ENDPOINT_TRUST_REMOTE_CODE=true to allow it."
            raise SettingError(_setting(config, name), "it runs Python code, which is not allowed", fix)
    plugin = config.tool_parser_plugin
    settings = FrontendSettings(**{each.name: getattr(config, each.name) for each in fields(FrontendSettings)})
    return replace(
        settings,
        chat_template=configured_template(config, None if model is None else LocalFiles(model, str(model))),
        tool_parser_plugin=str(model / plugin) if plugin and model and (model / plugin).is_file() else plugin,
    )


def _setting(config: EndpointConfig, name: str) -> str:
    """The name under which a value was given, for messages."""
    return config.source(name).name or f"ENDPOINT_{name.removeprefix('engine_args.').upper()}"
