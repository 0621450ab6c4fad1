"""OpenAI chat completions on the plain path. Replies have the same fields as vLLM 0.16's, without pydantic.

Source of the shapes: vllm/entrypoints/openai/chat_completion/{protocol,serving}.py.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from handler.engine.engine import Engine
from handler.engine.generation.generation import Generation
from handler.errors import EndpointError, InvalidField, MissingField, UnsupportedField
from handler.schemas.openai.model_names import check_model
from handler.schemas.openai.sampling_fields import Count, SamplingFields, convert, sampling
from handler.schemas.reply import DONE, Call, encode, error_event, event_of, stream_usage, usage

ROLES = ("system", "developer", "user", "assistant", "tool")
# The arguments of transformers' apply_chat_template, which a request must not set.
RESERVED_TEMPLATE_ARGUMENTS = frozenset(
    (
        "conversation",
        "messages",
        "chat_template",
        "tokenize",
        "add_generation_prompt",
        "continue_final_message",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
    )
)


class ChatFields(SamplingFields, frozen=True, kw_only=True):
    """The fields of a chat body that the plain path supports."""

    messages: list[dict[str, Any]]
    max_completion_tokens: Count | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    # Fields for OpenAI's service, which have no effect here. vLLM ignores them, too.
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    parallel_tool_calls: bool | None = None
    include_reasoning: bool | None = None


def parse(document: Mapping[str, Any], engine: Engine) -> Call:
    """Parses a chat body.

    :raises ClientError: a field is wrong. The error names it.
    """
    if not document.get("messages"):
        raise MissingField("messages", 'send a list such as [{"role": "user", "content": "Hello"}]')
    fields = convert(document, ChatFields)
    check_model(fields.model, engine.served_names)
    if fields.add_generation_prompt and fields.continue_final_message:
        raise InvalidField("continue_final_message", "it cannot be true while 'add_generation_prompt' is true")
    check_template_arguments(fields.chat_template_kwargs)
    ids = engine.prompts.chat(
        [message_of(index, message) for index, message in enumerate(fields.messages)],
        add_generation_prompt=fields.add_generation_prompt,
        continue_final_message=fields.continue_final_message,
        add_special_tokens=fields.add_special_tokens or False,
        template_arguments=fields.chat_template_kwargs,
    )
    max_tokens, name = fields.max_completion_tokens, "max_completion_tokens"
    if max_tokens is None:
        max_tokens, name = fields.max_tokens, "max_tokens"
    options = fields.stream_options
    request_id = f"chatcmpl-{uuid.uuid4().hex}"
    return Call(
        Generation(request_id, ids, sampling(fields, max_tokens, name), bool(fields.stream), model=fields.model),
        ChatReply(
            request_id,
            fields.model or engine.served_names[0],
            len(ids),
            engine.front_end.response_role if fields.add_generation_prompt else fields.messages[-1]["role"],
            include_usage=bool(options and options.include_usage) or engine.front_end.enable_force_include_usage,
            each_usage=bool(options and options.include_usage and options.continuous_usage_stats),
        ),
    )


def check_template_arguments(arguments: Mapping[str, Any] | None) -> None:
    """:raises InvalidField: the server itself sets one of the arguments."""
    for name in arguments or ():
        if name in RESERVED_TEMPLATE_ARGUMENTS:
            raise InvalidField(f"chat_template_kwargs.{name}", "it is set by the server and cannot be overridden")


def message_of(index: int, message: Mapping[str, Any], param: str = "messages") -> dict[str, Any]:
    """Checks one message. Its content is a text or a list of text parts."""
    where = f"{param}[{index}]"
    role = message.get("role")
    if role not in ROLES:
        raise InvalidField(f"{where}.role", f"it must be one of {', '.join(ROLES)}")
    if message.get("tool_calls"):
        raise UnsupportedField(f"{where}.tool_calls", "send the tool calls as text")
    content = message.get("content")
    if isinstance(content, list):
        content = [
            {"type": "text", "text": _part(f"{where}.content[{number}]", part)} for number, part in enumerate(content)
        ]
    elif content is None and role == "assistant":
        content = ""
    elif not isinstance(content, str):
        raise InvalidField(f"{where}.content", "it must be a string or a list of text parts")
    kept = {"role": role, "content": content}
    if isinstance(message.get("name"), str):
        kept["name"] = message["name"]
    return kept


def _part(where: str, part: object) -> str:
    if not isinstance(part, dict):
        raise InvalidField(where, 'it must be an object such as {"type": "text", "text": "Hello"}')
    if part.get("type", "text") != "text":
        raise UnsupportedField(where, "this model accepts text only")
    if not isinstance(part.get("text"), str):
        raise InvalidField(f"{where}.text", "it must be a string")
    return str(part["text"])


class ChatReply:
    """The reply to one chat request. The constant bytes of a chunk are made once, so a token only adds its text."""

    content_type: ClassVar[str] = "application/json"
    stream_content_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    __slots__ = ("_base", "_completion_tokens", "_each_usage", "_head", "_include_usage", "_prompt_tokens", "_role")

    def __init__(
        self, request_id: str, model: str, prompt_tokens: int, role: str, *, include_usage: bool, each_usage: bool
    ) -> None:
        self._role = role
        self._base: dict[str, object] = {"id": request_id, "object": "", "created": int(time.time()), "model": model}
        self._prompt_tokens = prompt_tokens
        self._completion_tokens = 0
        self._include_usage = include_usage
        self._each_usage = each_usage
        self._head = b"data: " + encode(self._chunk([]))[:-2]

    def _chunk(self, choices: list[object]) -> dict[str, object]:
        return {**self._base, "object": "chat.completion.chunk", "choices": choices}

    def _tail(self, completion_tokens: int) -> bytes:
        if not self._each_usage:
            return b"]}\n\n"
        return b'],"usage":' + encode(stream_usage(self._prompt_tokens, completion_tokens)) + b"}\n\n"

    def opening(self) -> bytes:
        choice = {
            "index": 0,
            "delta": {"role": self._role, "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        return self._head + encode(choice) + self._tail(0).replace(b"]", b'],"prompt_token_ids":null', 1)

    def event(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> bytes:
        self._completion_tokens += len(token_ids)
        if finish_reason is None:
            if not text:
                return b""
            return (
                self._head
                + b'{"index":0,"delta":{"content":'
                + encode(text)
                + b'},"logprobs":null,"finish_reason":null,"token_ids":null}'
                + self._tail(self._completion_tokens)
            )
        choice = {
            "index": 0,
            "delta": {"content": text},
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": stop_reason,
            "token_ids": None,
        }
        return self._head + encode(choice) + self._tail(self._completion_tokens)

    def closing(self) -> bytes:
        if not self._include_usage:
            return DONE
        document = self._chunk([])
        document["usage"] = stream_usage(self._prompt_tokens, self._completion_tokens)
        return event_of(document) + DONE

    def broken(self, error: EndpointError) -> bytes:
        return error_event(error)

    def whole(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> bytes:
        message: dict[str, object] = {
            "role": self._role,
            "content": text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "tool_calls": [],
            "reasoning": None,
        }
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": stop_reason,
            "token_ids": None,
        }
        return encode(
            {
                **self._base,
                "object": "chat.completion",
                "choices": [choice],
                "service_tier": None,
                "system_fingerprint": None,
                "usage": usage(self._prompt_tokens, len(token_ids)),
                "prompt_logprobs": None,
                "prompt_token_ids": None,
                "kv_transfer_params": None,
            }
        )
