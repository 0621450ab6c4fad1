"""Every tool parser that vLLM ships: what the model calls is what the client gets, whole and streamed.

A step of the core has one token, seven, or all of them, as with speculative decoding or a busy event loop.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.parsers.reply_formats import TOOL_FORMATS, Call
from tests.parsers.said import ask

if TYPE_CHECKING:
    import openai
    from openai.types.chat import ChatCompletionMessageParam

pytestmark = [pytest.mark.engine, pytest.mark.vllm_016("the streams of other versions are not corrected")]

STEPS: Final = (1, 7, 100_000)
PROPERTIES: Final[dict[str, dict[str, Any]]] = {
    "get_weather": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "search": {
        "query": {"type": "string"},
        "filters": {"type": "object"},
        "tags": {"type": "array"},
        "exact": {"type": "boolean"},
        "score": {"type": "number"},
    },
    "list_cities": {},
}
TOOLS: Final[list[Any]] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in PROPERTIES.items()
]
PARIS: Final = Call("get_weather", {"city": "Paris", "days": 3})
NESTED: Final = {"filters": {"lang": ["de", "fr"], "year": {"min": 1990}}, "tags": ["x", "y"], "score": 0.5}
QUOTES: Final = 'he said "7 > 3 & 2 < 4", it\'s {ok}\nnext \\ line'
CHATS: Final[dict[str, tuple[str, list[Call]]]] = {
    "one": ("", [PARIS]),
    "content": ("I will look.\n", [PARIS]),
    "parallel": ("", [PARIS, Call("search", {"query": "rain", "exact": True}), Call("get_weather", {"city": "Rome"})]),
    "nested": ("", [Call("search", {"query": "a", **NESTED, "exact": False})]),
    "unicode": ("", [Call("search", {"query": "Grüße, 世界 🚀, Ελλάδα"})]),
    "quotes": ("", [Call("search", {"query": QUOTES})]),
    "empty": ("", [Call("list_cities", {})]),
    "plain": ("It rains in Paris [today] {and} <b>tomorrow</b>: 3 > 2.", []),
}
# Also in whole replies, so streams have nothing to be completed from.
WRONG: Final = {
    (
        "phi4_mini_json",
        "nested",
    ): "its expression ends at the first ], so a call with a list is lost: `functools\\[(.*?)\\]`",
    ("step3", "quotes"): "its expression for a value has no <: `([^<]*)</steptml:parameter>`",
}


def cases() -> list[Any]:
    found = []
    for name, form in TOOL_FORMATS.items():
        for chat, (content, calls) in CHATS.items():
            if (content and calls and not form.content) or (len(calls) > 1 and not form.parallel):
                continue
            reason = WRONG.get((name, chat))
            marks = [pytest.mark.xfail(strict=True, reason=f"vLLM 0.16.0, {name}: {reason}")] if reason else []
            found.append(pytest.param(name, chat, marks=marks, id=f"{name}-{chat}"))
    return found


@pytest.mark.parametrize(("parser", "chat"), cases())
def test_calls_are_those_of_the_model_whole_and_streamed(replay: openai.OpenAI, parser: str, chat: str) -> None:
    content, calls = CHATS[chat]
    text = content + (TOOL_FORMATS[parser].write(calls) if calls else "")
    (whole,) = ask(replay, parser, text, tools=TOOLS)
    assert whole.tool_calls() == calls
    assert whole.content.strip() == content.strip()
    assert whole.finish == ("tool_calls" if calls else "stop")
    for step in STEPS:
        (streamed,) = ask(replay, parser, text, step=step, tools=TOOLS)
        assert streamed.tool_calls() == calls
        assert (streamed.content, streamed.finish) == (whole.content, whole.finish)


@pytest.mark.parametrize("stop", ["Observation:", "\n\n\n"])
@pytest.mark.parametrize("parser", ["hermes", "mistral", "deepseek_v31", "llama3_json", "qwen3_coder", "pythonic"])
def test_stop_strings_change_no_call(replay: openai.OpenAI, parser: str, stop: str) -> None:
    """vLLM holds back the end of a text that may become one."""
    for chat in ("content", "parallel", "plain"):
        content, calls = CHATS[chat]
        content = content if TOOL_FORMATS[parser].content or not calls else ""
        text = content + (TOOL_FORMATS[parser].write(calls) if calls else "")
        (whole,) = ask(replay, parser, text, tools=TOOLS, stop=[stop])
        assert (whole.tool_calls(), whole.content.strip()) == (calls, content.strip())
        for step in STEPS:
            assert ask(replay, parser, text, step=step, tools=TOOLS, stop=[stop])[0].content == whole.content
            assert ask(replay, parser, text, step=step, tools=TOOLS, stop=[stop])[0].tool_calls() == calls


@pytest.mark.parametrize("parser", ["hermes", "mistral", "deepseek_v31", "llama3_json", "qwen3_coder", "pythonic"])
@pytest.mark.parametrize("whole_calls", [0, 1])
def test_a_call_that_is_cut_off_does_not_follow_as_text(replay: openai.OpenAI, parser: str, whole_calls: int) -> None:
    calls = [PARIS, Call("search", {"query": "one two three", "exact": True})]
    text = TOOL_FORMATS[parser].write(calls[1 - whole_calls :])
    text = text[: text.rindex("three")]
    for step in STEPS:
        (streamed,) = ask(replay, parser, text, step=step, tools=TOOLS)
        assert bool(streamed.calls) is not ("one two" in streamed.content)


@pytest.mark.parametrize("parser", TOOL_FORMATS)
def test_forced_calls_have_valid_arguments(replay: openai.OpenAI, parser: str) -> None:
    """The grammar makes the model write JSON, in whatever format it would write by itself."""
    calls = CHATS["parallel"][1]
    text = json.dumps([{"name": call.name, "parameters": call.arguments} for call in calls])
    named = {"type": "function", "function": {"name": "search"}}
    for step in (0, 1, 7):
        (required,) = ask(replay, parser, text, step=step, tools=TOOLS, tool_choice="required")
        assert required.tool_calls() == calls
        (forced,) = ask(replay, parser, json.dumps(NESTED), step=step, tools=TOOLS, tool_choice=named)
        assert forced.tool_calls() == [Call("search", NESTED)]
        assert not required.content + forced.content


@pytest.mark.parametrize("parser", ["hermes", "llama3_json", "qwen3_coder", "seed_oss"])
def test_each_of_several_choices_has_its_own_calls(replay: openai.OpenAI, parser: str) -> None:
    calls = CHATS["parallel"][1]
    streamed = ask(replay, parser, TOOL_FORMATS[parser].write(calls), step=1, tools=TOOLS, n=3)
    assert [said.tool_calls() for said in streamed] == [calls] * 3


@pytest.mark.parametrize("parser", ["hermes", "deepseek_v31", "qwen3_coder", "llama3_json", "pythonic"])
def test_arguments_are_streamed_as_they_are_written(replay: openai.OpenAI, parser: str) -> None:
    body: Any = {"model": parser, "tools": TOOLS}
    text = TOOL_FORMATS[parser].write([Call("search", {"query": "one two three four five six", "exact": True})])
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": f"1:{text.encode().hex()}"}]
    chunks = list(replay.chat.completions.create(messages=messages, stream=True, **body))
    assert len([chunk for chunk in chunks if chunk.choices[0].delta.tool_calls]) > 3
