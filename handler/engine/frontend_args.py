"""vLLM's front-end settings: chat template, tool calls, usage details. They act outside the engine core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.config.start_rules import require_tool_settings
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
    trust_request_mm_kwargs: bool = False
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
    require_tool_settings(config)
    plugin = config.tool_parser_plugin
    settings = FrontendSettings(**{each.name: getattr(config, each.name) for each in fields(FrontendSettings)})
    return replace(
        settings,
        chat_template=configured_template(config, None if model is None else LocalFiles(model, str(model))),
        tool_parser_plugin=str(model / plugin) if plugin and model and (model / plugin).is_file() else plugin,
    )
