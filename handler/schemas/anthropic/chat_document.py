"""Translates a message body to the body of a chat. A pure function of the fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from handler.errors import InvalidField, UnsupportedField
from handler.schemas.anthropic.message_fields import (
    CountFields,
    MessageFields,
    MessageTool,
    MessageToolChoice,
    OutputConfig,
)
from handler.schemas.reply import encode

Json = dict[str, Any]
# Reasoning of earlier turns and of the steps of a tool loop. The chat template decides which of it the model sees. What
# another endpoint has redacted cannot be read here.
THINKING: Final = ("thinking", "redacted_thinking")
# Of a chat's efforts, the highest.
EFFORTS: Final = {"xhigh": "high", "max": "high"}
SAME: Final = ("max_tokens", "temperature", "top_p", "stream")


def chat_document(fields: CountFields) -> Json:
    """:raises ClientError: a message is wrong. The error names it as the client has sent it."""
    messages: list[Json] = []
    if fields.system:
        messages.append({"role": "system", "content": _instructions("system", fields.system)})
    for index, message in enumerate(fields.messages):
        for each in _messages(f"messages[{index}]", message):
            _add(messages, each)
    chat: Json = {"messages": messages}
    if fields.model is not None:
        chat["model"] = fields.model
    if fields.tools and not (fields.tool_choice and fields.tool_choice.type == "none"):
        chat["tools"] = [_tool(tool) for tool in fields.tools]
        if isinstance(fields, MessageFields):
            chat |= _choice(fields.tool_choice)
    if messages[-1].get("tool_calls"):
        raise InvalidField(f"messages[{len(fields.messages) - 1}]", "the next message must have the tool's result")
    if messages[-1]["role"] == "assistant":  # the reply goes on with this text
        chat |= {"add_generation_prompt": False, "continue_final_message": True}
    if fields.thinking is not None and fields.thinking.type != "adaptive":
        chat["chat_template_kwargs"] = {"enable_thinking": fields.thinking.type != "disabled"}
    if isinstance(fields, MessageFields):
        chat |= {name: value for name in SAME if (value := getattr(fields, name)) is not None}
        chat |= {"top_k": fields.top_k} if fields.top_k else {}
        chat |= {"stop": fields.stop_sequences} if fields.stop_sequences else {}
        chat |= _output(fields.output_config)
        if fields.stream:
            chat["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return chat


def _output(config: OutputConfig | None) -> Json:
    fields: Json = {}
    if config is not None and config.effort is not None:
        fields["reasoning_effort"] = EFFORTS.get(config.effort, config.effort)
    if config is not None and config.format is not None:
        schema = {"name": "output", "schema": config.format.schema}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    return fields


def _add(messages: list[Json], message: Json) -> None:
    """Adds a message. As in the API, turns of one role in a row are one: many templates want the roles to alternate."""
    if not messages or messages[-1]["role"] != message["role"] or message["role"] == "tool":
        messages.append(message)
        return
    last = messages[-1]
    last["content"] = _parts(last["content"])
    last["content"] += _parts(message["content"])
    for name in ("tool_calls", "reasoning"):
        if name in message:
            last[name] = last.get(name, message[name][:0]) + message[name]


def _parts(content: str | list[Json] | None) -> list[Json]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []


def _messages(where: str, message: Mapping[str, Any]) -> list[Json]:
    """One message of the API as messages of a chat: each result of a tool is one of its own."""
    role, content = message.get("role"), message.get("content")
    if role == "system":
        return [{"role": role, "content": _instructions(f"{where}.content", content)}]
    if role not in ("user", "assistant"):
        raise InvalidField(f"{where}.role", "it must be user, assistant or system")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    blocks = _blocks(f"{where}.content", content)
    results = [_result(at, block) for at, block in blocks if block["type"] == "tool_result" and role == "user"]
    calls = [_call(at, block) for at, block in blocks if block["type"] == "tool_use" and role == "assistant"]
    others = [
        _part(at, block)
        for at, block in blocks
        if block["type"] not in (*THINKING, "tool_result" if role == "user" else "tool_use")
    ]
    thinking = [(at, block) for at, block in blocks if block["type"] == "thinking" and role == "assistant"]
    reasoning = "".join(_text(f"{at}.thinking", block.get("thinking")) for at, block in thinking)
    chat_message: Json = {"role": role, "content": others or (None if calls else "")}
    if calls:
        chat_message["tool_calls"] = calls
    if reasoning:
        chat_message["reasoning"] = reasoning
    return [*results, chat_message] if others or not results else results


def _instructions(where: str, content: object) -> str | list[Json]:
    if isinstance(content, str):
        return content
    blocks = _blocks(where, content)
    for at, block in blocks:
        if block["type"] != "text":
            raise UnsupportedField(f"{at}.type", "instructions are text")
    return [_part(at, block) for at, block in blocks]


def _blocks(where: str, content: object) -> list[tuple[str, Mapping[str, Any]]]:
    if not isinstance(content, list):
        raise InvalidField(where, "it must be a text or a list of blocks")
    blocks = [(f"{where}[{number}]", block) for number, block in enumerate(content)]
    for at, block in blocks:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise InvalidField(at, 'it must be an object such as {"type": "text", "text": "Hello"}')
    return blocks


def _part(where: str, block: Mapping[str, Any]) -> Json:
    """A text or an image as a part of a chat message."""
    if block["type"] == "text":
        return {"type": "text", "text": _text(f"{where}.text", block.get("text"))}
    if block["type"] != "image":
        raise UnsupportedField(f"{where}.type", "a block is a text, an image, a tool's call or its result")
    source = block.get("source")
    if isinstance(source, dict) and source.get("type") == "url":
        url = _text(f"{where}.source.url", source.get("url"))
    elif isinstance(source, dict) and source.get("type") == "base64":
        kind = _text(f"{where}.source.media_type", source.get("media_type"))
        url = f"data:{kind};base64,{_text(f'{where}.source.data', source.get('data'))}"
    else:
        raise InvalidField(f"{where}.source", 'send {"type": "base64", "media_type": ..., "data": ...}')
    return {"type": "image_url", "image_url": {"url": url}}


def _call(where: str, block: Mapping[str, Any]) -> Json:
    arguments = {} if block.get("input") is None else block["input"]
    if not isinstance(arguments, dict):
        raise InvalidField(f"{where}.input", "it must be an object")
    return {
        "id": _text(f"{where}.id", block.get("id")),
        "type": "function",
        "function": {"name": _text(f"{where}.name", block.get("name")), "arguments": encode(arguments).decode()},
    }


def _result(where: str, block: Mapping[str, Any]) -> Json:
    call = _text(f"{where}.tool_use_id", block.get("tool_use_id"))
    content = block.get("content", "")
    if not isinstance(content, str):
        parts = [_part(at, part) for at, part in _blocks(f"{where}.content", content)]
        if any(part["type"] != "text" for part in parts):
            raise UnsupportedField(f"{where}.content", "the result of a tool is text here")
        content = "\n".join(part["text"] for part in parts)
    return {"role": "tool", "tool_call_id": call, "content": content}


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidField(where, "it must be a string")
    return value


def _tool(tool: MessageTool) -> Json:
    function = {"name": tool.name, "parameters": {"type": "object", **(tool.input_schema or {})}}
    return {
        "type": "function",
        "function": {**function, **({"description": tool.description} if tool.description else {})},
    }


def _choice(choice: MessageToolChoice | None) -> Json:
    if choice is None:
        return {"tool_choice": "auto"}
    single: Json = {"parallel_tool_calls": False} if choice.disable_parallel_tool_use else {}
    if choice.type == "tool":
        return {"tool_choice": {"type": "function", "function": {"name": choice.name}}, **single}
    return {"tool_choice": "required" if choice.type == "any" else choice.type, **single}
