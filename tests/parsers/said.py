"""What a chat said, whole or streamed: the fields that tool calls and reasoning are about."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.parsers.reply_formats import Call

if TYPE_CHECKING:
    import openai


@dataclass(slots=True)
class Said:
    """A choice's message. Streamed, it is the concatenated deltas."""

    reasoning: str = ""
    content: str = ""
    calls: list[list[str]] = field(default_factory=list)
    finish: str | None = None

    def tool_calls(self) -> list[Call]:
        """:raises ValueError: arguments that are no JSON."""
        return [Call(name, json.loads(arguments)) for name, arguments in self.calls]


def ask(client: openai.OpenAI, parsers: str, text: str, *, step: int = 0, **fields: Any) -> list[Said]:
    """The choices of a chat whose model says `text`.

    :param parsers: `hermes`, `hermes+qwen3` or `+qwen3`.
    :param step: streams, with that many tokens in each step of the core. 0: whole.
    """
    prompt = f"{step or 1}:{text.encode().hex()}"
    body = {"model": parsers, "messages": [{"role": "user", "content": prompt}], "temperature": 0.5, **fields}
    if not step:
        return [_whole(choice) for choice in client.chat.completions.create(**body).choices]
    choices = [Said() for _ in range(fields.get("n", 1))]
    for chunk in client.chat.completions.create(**body, stream=True):
        for choice in chunk.choices:
            _add(choices[choice.index], choice)
    return choices


def _whole(choice: Any) -> Said:
    calls = [[call.function.name, call.function.arguments] for call in choice.message.tool_calls or ()]
    reasoning = getattr(choice.message, "reasoning", None)
    return Said(reasoning or "", choice.message.content or "", calls, choice.finish_reason)


def _add(said: Said, choice: Any) -> None:
    said.reasoning += getattr(choice.delta, "reasoning", None) or ""
    said.content += choice.delta.content or ""
    said.finish = choice.finish_reason or said.finish
    for call in choice.delta.tool_calls or ():
        if call.index == len(said.calls):
            assert call.id
            said.calls.append(["", ""])
        said.calls[call.index][0] += call.function.name or ""
        said.calls[call.index][1] += call.function.arguments or ""
