"""The reply to a message, made from the reply to the chat that it was translated to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from handler.engine.generation.generation import StopReason
from handler.errors import EndpointError
from handler.schemas.anthropic.message_events import MessageEvents, message_id, stop_of
from handler.schemas.reply import Reply, encode

# Anthropic's API reference, "Errors". Every other 4xx is an invalid_request_error, every other 5xx an api_error.
TYPES: Final[Mapping[int, str]] = {
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_document(error: EndpointError) -> dict[str, Any]:
    """The error object of Anthropic's API, with its type. `param` and `code` are as in OpenAI's errors."""
    kind = TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return {"type": "error", "error": {**error.document()["error"], "type": kind}}


def error_body(error: EndpointError, *, of_message: bool) -> bytes:
    """The body of an error reply, in the form of the API that the request is of."""
    return encode(error_document(error) if of_message or error.of_message else error.document())


DATA: Final = b"data: "
END: Final = b"data: [DONE]"


class MessageReply(Reply):
    """One message, whole or as events, from the reply to the chat."""

    __slots__ = ("_chat", "_events", "_opened")
    of_message = True

    def __init__(self, chat: Reply) -> None:
        self._chat = chat
        self._events = MessageEvents()
        self._opened = False

    def event(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        frames = self._chat.event(text, token_ids, finish_reason, stop_reason)
        if not self._opened and frames:
            self._opened = True
            frames = self._chat.opening() + frames
        return self._translated(frames)

    def closing(self) -> bytes:
        return self._translated(self._chat.closing()) + self._events.end()

    def broken(self, error: EndpointError) -> bytes:
        return b"event: error\n" + DATA + encode(error_document(error)) + b"\n\n"

    def whole(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        document = msgspec.json.decode(self._chat.whole(text, token_ids, finish_reason, stop_reason))
        return encode(message(document))

    def _translated(self, frames: bytes) -> bytes:
        chunks = [frame[len(DATA) :] for frame in frames.split(b"\n\n") if frame.startswith(DATA) and frame != END]
        return b"".join(self._events.of(msgspec.json.decode(chunk)) for chunk in chunks)


class CountReply(Reply):
    """The number of tokens of a body, from the reply of /tokenize."""

    __slots__ = ("_tokenization",)
    of_message = True

    def __init__(self, tokenization: Reply) -> None:
        self._tokenization = tokenization

    def event(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        return b""

    def whole(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        document = msgspec.json.decode(self._tokenization.whole(text, token_ids, finish_reason, stop_reason))
        return encode({"input_tokens": document["count"]})


def message(chat: Mapping[str, Any]) -> dict[str, Any]:
    """The message for a whole chat. Arguments that the limit of tokens has cut off are read as far as they go."""
    choice, usage = chat["choices"][0], chat["usage"]
    said = choice["message"]
    content: list[dict[str, Any]] = []
    thinking = said.get("reasoning") or said.get("reasoning_content")
    if thinking:
        content.append({"type": "thinking", "thinking": thinking, "signature": ""})
    if said.get("content"):
        content.append({"type": "text", "text": said["content"]})
    for call in said.get("tool_calls") or ():
        arguments = tool_input(call["function"]["arguments"])
        content.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments})
    return {
        "id": message_id(chat["id"]),
        "type": "message",
        "role": "assistant",
        "model": chat["model"],
        "content": content,
        **stop_of(choice, tools=any(block["type"] == "tool_use" for block in content)),
        "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]},
    }


def tool_input(arguments: str) -> dict[str, Any]:
    """The object that a model's text spells, as far as it goes. Empty if it spells none: the API has objects only."""
    from pydantic_core import from_json  # vLLM imports it, too: it would delay the start before that

    try:
        value = from_json(arguments, allow_partial=True)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
