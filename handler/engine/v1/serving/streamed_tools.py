"""Makes streamed tool calls the same as those of a whole reply. Written for vLLM 0.16.0.

vLLM has two parsers for each format of tool calls: one for whole texts, and one for streams. The second one loses
calls, arguments or content where a step has several tokens (speculative decoding, a busy event loop), where arguments
are empty, or always. `n` choices share one parser. docs/tool-calls.md lists what was seen of each parser.

`complete` keeps a parser's streams, and corrects them:

- Each choice has a parser of its own. `current_output` gives it one token at a time.
- At the end, what the parser for whole texts found and the stream lacks is sent. It rejects a call that is cut off,
  which a stream has begun already. Then nothing more is sent.
- The parsers in `HELD` send what is wrong, which cannot be taken back. They are not asked. The text is streamed up to a
  mark, and the calls are sent at the end.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from vllm.entrypoints.openai.engine.protocol import (
    DeltaFunctionCall,
    DeltaMessage,
    DeltaToolCall,
    ExtractedToolCallInformation,
)
from vllm.tool_parsers import ToolParser

from handler.engine.v1.serving.current_output import CURRENT

logger = logging.getLogger(__name__)

# Parsers whose own streams contradict whole texts, and the marks with which their calls begin. A mark that begins with
# ^ counts at the beginning of the text only.
HELD: Final[Mapping[str, tuple[str, ...]]] = {
    "functiongemma": ("<start_function_call>",),
    "granite": ("^<|tool_call|>", "^<tool_call>", "^["),
    "hunyuan_a13b": ("<tool_calls>",),
    "internlm": ("<|action_start|>",),
    "jamba": ("<tool_calls>",),
    "minimax": ("<tool_calls>",),
    "phi4_mini_json": ("functools[",),
    "qwen3_xml": ("<tool_call>", "<function="),
    "seed_oss": ("<seed:tool_call>",),
    "step3": ("<｜tool_calls_begin｜>",),
    "step3p5": ("<tool_call>", "<function="),
}

# Parsers of vLLM 0.16.0 that leave arguments as texts in whole replies, all of them or objects and lists.
TEXT_ONLY: Final = ("deepseek_v32", "step3")
PYTHON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


@dataclass(slots=True)
class _Stream:
    """What a choice's stream has so far.

    :ivar parser: vLLM's own. None: it is not asked.
    :ivar space: white space that is not sent until there is text behind it. A whole reply has none between its calls.
    :ivar calls: name and arguments of each call.
    """

    parser: ToolParser | None
    content: str = ""
    space: str = ""
    calls: list[list[str]] = field(default_factory=list)

    def message(self, content: str, calls: list[DeltaToolCall]) -> DeltaMessage | None:
        """What is sent of these, and now counts as sent."""
        text = (self.space + content).rstrip()
        self.space = (self.space + content)[len(text) :]
        return self.exact_message(text, calls)

    def exact_message(self, content: str, calls: list[DeltaToolCall]) -> DeltaMessage | None:
        """As `message`, with the white space at the end."""
        self.content += content
        for call in calls:
            while len(self.calls) <= call.index:
                self.calls.append(["", ""])
            if call.function is not None:
                self.calls[call.index][0] += call.function.name or ""
                self.calls[call.index][1] += call.function.arguments or ""
        fields: dict[str, Any] = {"content": content} if content else {}
        fields |= {"tool_calls": calls} if calls else {}
        return DeltaMessage(**fields) if fields else None


def complete(name: str, base: type[ToolParser]) -> type[ToolParser]:
    """A parser for the same format, whose streams are complete.

    :param name: the name under which vLLM knows the parser.
    """
    marks = HELD.get(name)

    class CompleteToolParser(base):  # type: ignore[misc]  # a class that is only known here
        def __init__(self, tokenizer: Any) -> None:
            super().__init__(tokenizer)
            self._streams: dict[int, _Stream] = {}

        def extract_tool_calls(self, model_output: str, request: Any) -> ExtractedToolCallInformation:
            whole_text = super().extract_tool_calls(model_output, request)
            return _with_types(whole_text, request.tools) if name in TEXT_ONLY else whole_text

        def extract_tool_calls_streaming(self, **step: Any) -> DeltaMessage | None:
            """:param step: the arguments that vLLM passes, all by name."""
            text, request = step["current_text"], step["request"]
            index, finished = CURRENT.get()
            stream = self._streams.get(index)
            if stream is None:
                stream = self._streams[index] = _Stream(None if marks else base(self.model_tokenizer))
            if marks:
                message = stream.message(_plain_text(text, marks)[len(stream.content + stream.space) :], [])
            else:
                message = stream.message(*_own_stream(stream, step))
            if finished:
                # vLLM's parsers for whole texts keep state, so each text gets a parser of its own.
                whole_text = type(self)(self.model_tokenizer).extract_tool_calls(text, request)
                message = _last(message, _rest(stream, whole_text))
            self.prev_tool_call_arr = [{"name": call[0]} for call in stream.calls]
            return message

    CompleteToolParser.__name__ = base.__name__
    return CompleteToolParser


def _own_stream(stream: _Stream, step: Mapping[str, Any]) -> tuple[str, list[DeltaToolCall]]:
    """What vLLM's parser sends for a step."""
    if stream.parser is None:
        return "", []
    try:
        delta = stream.parser.extract_tool_calls_streaming(**step)
    except Exception as error:  # the parsers index and convert what a model has written
        logger.warning("a tool parser failed in a stream (%s). The rest follows at the end.", type(error).__name__)
        stream.parser = None
        return "", []
    return (delta.content or "", delta.tool_calls) if delta else ("", [])


def _plain_text(text: str, marks: Sequence[str]) -> str:
    """The text up to the first mark, or to what may become one."""
    end = len(text)
    for mark in marks:
        if mark.startswith("^"):
            beginning = text.lstrip()
            if beginning.startswith(mark[1:]) or mark[1:].startswith(beginning):
                return ""
        elif (place := text.find(mark)) >= 0:
            end = min(end, place)
        else:
            kept = next((size for size in range(len(mark) - 1, 0, -1) if text.endswith(mark[:size])), 0)
            end = min(end, len(text) - kept)
    return text[:end]


def _rest(stream: _Stream, whole_text: ExtractedToolCallInformation) -> DeltaMessage | None:
    """What a whole reply has, and the stream lacks."""
    if stream.calls and not whole_text.tools_called:
        return None
    content = whole_text.content or ""
    if whole_text.tools_called and not content.strip():
        content = ""
    missing = content[len(stream.content) :] if content.startswith(stream.content) else ""
    calls: list[DeltaToolCall] = []
    for index, call in enumerate(whole_text.tool_calls):
        name, arguments = call.function.name, call.function.arguments
        sent = stream.calls[index] if index < len(stream.calls) else ["", ""]
        if not sent[0]:
            function = DeltaFunctionCall(name=name)
            calls.append(DeltaToolCall(index=index, id=call.id, type="function", function=function))
        if not arguments.startswith(sent[1]):
            if _value(arguments) != _value(sent[1]):
                logger.warning("a streamed tool call differs from that of the whole text")
        elif arguments != sent[1]:
            function = DeltaFunctionCall(arguments=arguments[len(sent[1]) :])
            calls.append(DeltaToolCall(index=index, function=function))
    return stream.exact_message(missing, calls)


def _value(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _last(message: DeltaMessage | None, rest: DeltaMessage | None) -> DeltaMessage | None:
    """The last message of a stream. vLLM replaces one whose first call has arguments by arguments that it guesses."""
    parts = [part for part in (message, rest) if part is not None]
    content = "".join(part.content or "" for part in parts)
    calls = [call for part in parts for call in part.tool_calls]
    if calls and calls[0].function is not None and calls[0].function.arguments is not None:
        calls.insert(0, DeltaToolCall(index=calls[0].index, function=DeltaFunctionCall()))
    fields: dict[str, Any] = {"content": content} if content else {}
    fields |= {"tool_calls": calls} if calls else {}
    return DeltaMessage(**fields) if fields else None


def _with_types(extracted: ExtractedToolCallInformation, tools: Sequence[Any] | None) -> ExtractedToolCallInformation:
    """Gives the arguments of calls the types of the tool's schema: a text becomes the value that it is as JSON."""
    schemas = {tool.function.name: (tool.function.parameters or {}).get("properties", {}) for tool in tools or ()}
    for call in extracted.tool_calls:
        arguments, properties = _value(call.function.arguments), schemas.get(call.function.name, {})
        if not isinstance(arguments, dict):
            continue
        typed = {name: _typed(value, properties.get(name)) for name, value in arguments.items()}
        call.function.arguments = json.dumps(typed, ensure_ascii=False)
    return extracted


def _typed(value: object, schema: object) -> object:
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    names = [kinds] if isinstance(kinds, str) else kinds or []
    if not isinstance(value, str) or "string" in names:
        return value
    parsed = _value(value)
    return parsed if any(type(parsed) in PYTHON_TYPES.get(name, ()) for name in names) else value
