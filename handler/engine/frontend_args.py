"""vLLM's front-end settings: chat template, tool calls, usage details. They act outside the engine core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.json_value import Json


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
        chat_template=_template(config, model),
        tool_parser_plugin=None if plugin is None else str(_file(plugin, model) or plugin),
    )


def _template(config: EndpointConfig, model: Path | None) -> str | None:
    """The text of the configured template. A value with braces or a line end is the template, any other a file."""
    configured = config.chat_template
    if configured is None:
        return None
    if any(mark in configured for mark in "{}\n"):
        return configured
    file, setting = _file(configured, model), _setting(config, "chat_template")
    if file is None:
        raise SettingError(
            setting,
            f"there is no file '{configured[:200]}'",
            "Give the path of a file, the name of a file in the model's directory, or the template itself.",
        )
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(setting, f"it cannot be read ({type(error).__name__})", "Name a text file.") from None


def _setting(config: EndpointConfig, name: str) -> str:
    """The name under which a value was given, for messages."""
    return config.source(name).name or f"ENDPOINT_{name.removeprefix('engine_args.').upper()}"


def _file(name: str, model: Path | None) -> Path | None:
    for file in ([] if model is None else [model / name]) + [Path(name)]:
        if file.is_file():
            return file
    return None
