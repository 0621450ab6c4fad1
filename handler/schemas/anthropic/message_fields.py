"""The fields of a body of the Messages API, with their types and bounds.

Source: Anthropic's API reference, "Create a Message" and "Count tokens in a Message", as of the `anthropic` package
2.11. That package has no temperature, top_p and top_k any more; its older versions, and Amazon Bedrock, have.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from handler.errors import InvalidField, MissingField, UnsupportedField
from handler.schemas.openai.sampling_fields import Count, convert

# By this field a body of /invocations is a message. Amazon Bedrock requires it, too, in place of the version header.
VERSION_FIELD: Final = "anthropic_version"


class MessagesRoute(StrEnum):
    """A path of the Messages API."""

    MESSAGES = "/v1/messages"
    COUNT = "/v1/messages/count_tokens"


class MessageTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the client runs."""

    name: Annotated[str, Meta(min_length=1)]
    input_schema: dict[str, Any] | None = None
    description: str | None = None
    type: str | None = None


class MessageToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class MessageThinking(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the model reasons first. The other values of this field have no effect here."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]


class JsonFormat(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The form of the reply, and how much the model reasons for it."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class CountFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a body whose tokens are counted."""

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    model: str | None = None
    system: str | list[dict[str, Any]] | None = None
    tools: list[MessageTool] | None = None
    tool_choice: MessageToolChoice | None = None
    thinking: MessageThinking | None = None
    output_config: OutputConfig | None = None
    anthropic_version: str | None = None


class MessageFields(CountFields, frozen=True, kw_only=True):
    """The fields of a body that is answered."""

    max_tokens: Count
    stop_sequences: list[Annotated[str, Meta(min_length=1)]] | None = None
    stream: bool | None = False
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None


PARTS: Final = {
    "tools": MessageTool,
    "tool_choice": MessageToolChoice,
    "thinking": MessageThinking,
    "output_config": OutputConfig,
}


def unread_keys(document: Mapping[str, Any]) -> list[str]:
    """The keys of a message's tools and options that have a value and no effect."""
    names = dict[str, None]()
    for field, kind in PARTS.items():
        value = document.get(field)
        for part in value if isinstance(value, list) else [value or {}]:
            names |= {f"{field}.{key}": None for key in part if part[key] and key not in kind.__struct_fields__}
    return list(names)


Fields = TypeVar("Fields", bound=CountFields)


def checked(document: Mapping[str, Any], fields: type[Fields]) -> Fields:
    """:raises ClientError: a field is missing, wrong, or has no effect here. The error names it."""
    if not document.get("messages"):
        raise MissingField("messages", 'send a list such as [{"role": "user", "content": "Hello"}]')
    if fields is MessageFields and document.get("max_tokens") is None:
        raise MissingField("max_tokens", "the Messages API requires a number of output tokens")
    message = convert(document, fields)
    for index, tool in enumerate(message.tools or ()):
        if tool.type not in (None, "custom") or tool.input_schema is None:
            raise UnsupportedField(f"tools[{index}]", "send a tool of your own, with 'name' and 'input_schema'")
    choice = message.tool_choice
    if choice is not None and choice.type == "tool" and choice.name not in [tool.name for tool in message.tools or ()]:
        raise InvalidField("tool_choice.name", "it must be the name of one of 'tools'")
    if choice is not None and choice.type != "none" and not message.tools:
        raise InvalidField("tool_choice", "there are no 'tools' to choose from")
    return message
