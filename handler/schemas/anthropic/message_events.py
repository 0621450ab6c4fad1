"""The events of a streamed message, made from the chunks of a streamed chat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from handler.schemas.reply import encode

STOPS: Final[Mapping[str, str]] = {"length": "max_tokens", "tool_calls": "tool_use"}


def message_id(chat_id: str) -> str:
    return f"msg_{chat_id.removeprefix('chatcmpl-')}"


def stop_of(choice: Mapping[str, Any], *, tools: bool) -> dict[str, str | None]:
    """Why a message ended.

    :param choice: the choice of a chat, with its finish reason.
    :param tools: the message calls a tool. A forced call ends with `stop` in a chat.
    """
    finish, stop = choice.get("finish_reason"), choice.get("stop_reason")
    reason = STOPS.get(str(finish), "end_turn")
    if reason == "end_turn" and tools:
        reason = "tool_use"
    elif reason == "end_turn" and isinstance(stop, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": stop}
    return {"stop_reason": reason, "stop_sequence": None}


class MessageEvents:
    """The events of one message.

    Blocks follow each other: a new one begins where the kind changes, and with each tool call. Only a call whose
    arguments are not whole is open beside it: a parser may have the rest of them last.
    """

    def __init__(self) -> None:
        self._begun = False
        self._block = -1
        self._open: str | None = None  # the kind of the open block of text or thinking, which is the last one
        self._calls: dict[int, int] = {}  # the blocks of tool calls, by the index of the call
        self._arguments: dict[int, str] = {}  # of the calls whose blocks are open
        self._last: Mapping[str, Any] = {}
        self._usage: Mapping[str, Any] = {}

    def of(self, chunk: Mapping[str, Any]) -> bytes:
        """The events for one chunk. May be empty."""
        self._usage = chunk.get("usage") or self._usage
        events = b"" if self._begun else self._begin(chunk)
        for choice in chunk["choices"]:
            delta = choice["delta"]
            thinking = delta.get("reasoning") or delta.get("reasoning_content")
            if thinking:
                events += self._grow("thinking", {"thinking": "", "signature": ""}, "thinking", thinking)
            if delta.get("content"):
                events += self._grow("text", {"text": ""}, "text", delta["content"])
            for call in delta.get("tool_calls") or ():
                events += self._call(call)
            if choice.get("finish_reason"):
                self._last = choice
        return events

    def end(self) -> bytes:
        """The events after the last chunk."""
        usage = {"input_tokens": self._usage.get("prompt_tokens", 0)}
        usage["output_tokens"] = self._usage.get("completion_tokens", 0)
        delta = stop_of(self._last, tools=bool(self._calls))
        return (
            self._stop()
            + self._stop_calls(all_of_them=True)
            + _event("message_delta", delta=delta, usage=usage)
            + _event("message_stop")
        )

    def _begin(self, chunk: Mapping[str, Any]) -> bytes:
        self._begun = True
        message = {"id": message_id(chunk["id"]), "type": "message", "role": "assistant", "model": chunk["model"]}
        usage = {"input_tokens": self._usage.get("prompt_tokens", 0), "output_tokens": 0}
        none: dict[str, object] = {"content": [], "stop_reason": None, "stop_sequence": None}
        return _event("message_start", message={**message, **none, "usage": usage})

    def _call(self, call: Mapping[str, Any]) -> bytes:
        function = call.get("function") or {}
        block: dict[str, object] = {"id": call.get("id"), "name": function.get("name"), "input": {}}
        events = b""
        if call["index"] not in self._calls:
            events = self._start(None, {"type": "tool_use", **block})
            self._calls[call["index"]], self._arguments[call["index"]] = self._block, ""
        arguments = function.get("arguments")
        if arguments and call["index"] in self._arguments:
            self._arguments[call["index"]] += arguments
            delta = {"type": "input_json_delta", "partial_json": arguments}
            events += _event("content_block_delta", index=self._calls[call["index"]], delta=delta)
        return events

    def _grow(self, kind: str, empty: Mapping[str, str], key: str, text: str) -> bytes:
        events = b"" if self._open == kind else self._start(kind, {"type": kind, **empty})
        delta = {"type": f"{kind}_delta", key: text}
        return events + _event("content_block_delta", index=self._block, delta=delta)

    def _start(self, opened: str | None, block: Mapping[str, Any]) -> bytes:
        events = self._stop() + self._stop_calls()
        self._open, self._block = opened, self._block + 1
        return events + _event("content_block_start", index=self._block, content_block=block)

    def _stop(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _event("content_block_stop", index=self._block)

    def _stop_calls(self, *, all_of_them: bool = False) -> bytes:
        """Ends the blocks of calls: those whose arguments are whole, or all."""
        ended = [index for index, arguments in self._arguments.items() if all_of_them or _is_json(arguments)]
        for index in ended:
            del self._arguments[index]
        return b"".join(_event("content_block_stop", index=self._calls[index]) for index in ended)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _event(kind: str, **fields: object) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + encode({"type": kind, **fields}) + b"\n\n"
