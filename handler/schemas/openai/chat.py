"""OpenAI chat completions on the plain path. Replies have the same fields as vLLM 0.16's, without pydantic.

Source of the shapes: vllm/entrypoints/openai/chat_completion/{protocol,serving}.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from handler.engine.engine import Engine
from handler.engine.generation.generation import Generation, StopReason
from handler.errors import InvalidField, MissingField, UnsupportedField
from handler.schemas.openai.model_names import check_model
from handler.schemas.openai.plain_reply import OF_PROMPT, PlainReply
from handler.schemas.openai.sampling_fields import Count, SamplingFields, convert, sampling
from handler.schemas.reply import Call, encode, stream_usage

# The arguments of transformers' apply_chat_template, which a request must not set.
RESERVED_TEMPLATE_ARGUMENTS = frozenset(
    (
        *("conversation", "messages", "chat_template", "tokenize", "add_generation_prompt", "continue_final_message"),
        *("padding", "truncation", "max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask"),
        "tokenizer_kwargs",
    )
)

# The fields of a message that vLLM's classes alone read. A chat with one is theirs; `inputs` are not.
IN_CHATS: Final = ("tool_calls", "tool_call_id", "reasoning", "reasoning_content")
# The fields of a message that this path never sets.
UNSET: Final[Mapping[str, None]] = dict.fromkeys(("refusal", "annotations", "audio", "function_call"))


class ChatFields(SamplingFields, frozen=True, kw_only=True):
    """The fields of a chat body that the plain path supports."""

    messages: list[dict[str, Any]]
    max_completion_tokens: Count | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    include_reasoning: bool | None = None


def parse(document: Mapping[str, Any], engine: Engine) -> Call:
    """:raises ClientError: a field is wrong. The error names it."""
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
    request_id = f"chatcmpl-{secrets.token_hex(16)}"
    return Call(
        Generation(request_id, ids, sampling(fields, max_tokens, name), bool(fields.stream), model=fields.model),
        ChatReply(request_id, fields, len(ids), engine),
    )


def check_template_arguments(arguments: Mapping[str, Any] | None) -> None:
    """:raises InvalidField: the server itself sets one of the arguments."""
    for name in arguments or ():
        if name in RESERVED_TEMPLATE_ARGUMENTS:
            raise InvalidField(f"chat_template_kwargs.{name}", "it is set by the server and cannot be overridden")


def message_of(index: int, message: Mapping[str, Any], param: str = "messages") -> dict[str, Any]:
    """Checks one message. Its content is a text or a list of text parts.

    Its role is any text, as in vLLM. Chat templates have roles of their own (`ipython`, `document`), and reject others.
    """
    where = f"{param}[{index}]"
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidField(f"{where}.role", "it must be a text such as user or assistant")
    for name in IN_CHATS:
        if message.get(name):
            raise UnsupportedField(f"{where}.{name}", "send the list as 'messages', in a chat")
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
        raise UnsupportedField(where, "'inputs' takes text: if the model takes more, send the list as 'messages'")
    if not isinstance(part.get("text"), str):
        raise InvalidField(f"{where}.text", "it must be a string")
    return str(part["text"])


class ChatReply(PlainReply):
    """The reply to one chat request."""

    __slots__ = ("_role",)
    before_text = b'{"index":0,"delta":{"content":'

    def __init__(self, request_id: str, fields: ChatFields, prompt_tokens: int, engine: Engine) -> None:
        super().__init__(request_id, "chat.completion.chunk", fields, prompt_tokens, engine)
        new = fields.add_generation_prompt
        self._role = engine.front_end.response_role if new else fields.messages[-1]["role"]

    def _tail(self, completion_tokens: int) -> bytes:
        if not self._each_usage:
            return b"]}\n\n"
        return b'],"usage":' + encode(stream_usage(self._prompt_tokens, completion_tokens)) + b"}\n\n"

    def opening(self) -> bytes:
        delta = {"role": self._role, "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return self._head + encode(choice) + self._tail(0).replace(b"]", b'],"prompt_token_ids":null', 1)

    def _after(self, finish_reason: str | None, stop_reason: StopReason) -> bytes:
        end = b"null" if finish_reason is None else encode(finish_reason) + b',"stop_reason":' + encode(stop_reason)
        rest = b'},"logprobs":null,"finish_reason":' + end + b',"token_ids":null}'
        return rest + self._tail(self._completion_tokens)

    def whole(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        message: dict[str, object] = {"role": self._role, "content": text, **UNSET, "tool_calls": [], "reasoning": None}
        end = finish_reason, stop_reason
        return self._document("chat.completion", {"message": message}, len(token_ids), end, of_reply=OF_PROMPT)
