"""Every reasoning parser that vLLM ships: reasoning, content and tool calls are the same whole and streamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.installed_vllm import is_016
from tests.parsers.reply_formats import FAMILIES, REASONING_FORMATS, TOOL_FORMATS
from tests.parsers.said import ask
from tests.parsers.test_tool_parsers import CHATS, STEPS, TOOLS

if TYPE_CHECKING:
    import openai

pytestmark = [pytest.mark.engine]

REPLIES: Final = {
    "short": ("The user asks.", "It rains."),
    "long": ("Grüße 世界 🚀\n\nSo: a < b.\n", "\n\nIt rains [today] {and} <b>x</b>."),
    "no content": ("Thinking, and then nothing.", ""),
}
WRONG: Final = {
    "granite": "a stream's reasoning has the first words of what ends it",
    "hunyuan_a13b": "a stream's marks are the token ids of that model's tokenizer",
    "mistral": "it needs Mistral's own tokenizer, which a stand-in does not have",
    "olmo3+olmo3": "a stream's reasoning never ends, because its mark has several tokens: calls come as text",
}


# Not tested on other versions, or wrong there (docs/tool-calls.md, "Later versions").
ONLY_016: Final = {"mistral", "olmo3", "olmo3+olmo3", "seed_oss+seed_oss", "step3p5+step3p5"}
CUT: Final = dict.fromkeys(
    ("qwen3", "olmo3") if is_016() else (),
    "a whole reply that is cut off in its reasoning has it as content, with the mark",
)


def cases(names: Any, wrong: Mapping[str, str] = WRONG) -> list[Any]:
    marks = {name: [pytest.mark.xfail(strict=True, reason=f"vLLM: {why}")] for name, why in wrong.items()}
    for name in ONLY_016:
        marks.setdefault(name, []).append(pytest.mark.vllm_016("wrong on other versions, or not tested"))
    return [pytest.param(name, marks=marks.get(name, [])) for name in names]


def template(name: str) -> dict[str, Any]:
    arguments = REASONING_FORMATS[name].template
    return {"extra_body": {"chat_template_kwargs": dict(arguments)}} if arguments else {}


@pytest.mark.parametrize("parser", cases(REASONING_FORMATS))
@pytest.mark.parametrize("reply", REPLIES)
def test_reasoning_is_apart_from_content_whole_and_streamed(replay: openai.OpenAI, parser: str, reply: str) -> None:
    reasoning, content = REPLIES[reply]
    text = REASONING_FORMATS[parser].write(reasoning, content)
    (whole,) = ask(replay, f"+{parser}", text, **template(parser))
    assert (whole.reasoning.strip(), whole.content.strip()) == (reasoning.strip(), content.strip())
    for step in STEPS:
        assert ask(replay, f"+{parser}", text, step=step, **template(parser)) == [whole]


@pytest.mark.parametrize("stop", ["Observation:", "\n\n\n", "weather"])
@pytest.mark.parametrize("parser", cases(REASONING_FORMATS))
def test_stop_strings_change_no_reasoning(replay: openai.OpenAI, parser: str, stop: str) -> None:
    """vLLM holds back the end of a text that may become one."""
    text = REASONING_FORMATS[parser].write("Grüße, I think.", "It rains. The weather is bad.")
    (whole,) = ask(replay, f"+{parser}", text, stop=[stop], **template(parser))
    assert whole.reasoning == "Grüße, I think."
    for step in STEPS:
        assert ask(replay, f"+{parser}", text, step=step, stop=[stop], **template(parser)) == [whole]


@pytest.mark.parametrize("parser", cases(REASONING_FORMATS, {**WRONG, **CUT}))
def test_reasoning_that_ends_too_early_is_the_same_whole_and_streamed(replay: openai.OpenAI, parser: str) -> None:
    """As with `max_tokens`: there is no content, and no mark of its beginning."""
    text = f"{REASONING_FORMATS[parser].before}I think so"
    (whole,) = ask(replay, f"+{parser}", text, **template(parser))
    assert (whole.reasoning, whole.content) == ("I think so", "")
    for step in STEPS:
        assert ask(replay, f"+{parser}", text, step=step, **template(parser)) == [whole]


@pytest.mark.parametrize("family", cases(FAMILIES))
@pytest.mark.parametrize("chat", ["content", "parallel"])
def test_calls_follow_reasoning_whole_and_streamed(replay: openai.OpenAI, family: str, chat: str) -> None:
    tools, _, reasoning = family.partition("+")
    content, calls = CHATS[chat]
    if calls and not TOOL_FORMATS[tools].content:
        content = ""
    said = content + (TOOL_FORMATS[tools].write(calls) if calls else "")
    text = REASONING_FORMATS[reasoning].write("I think.\nSo.", said)
    (whole,) = ask(replay, family, text, tools=TOOLS, **template(reasoning))
    assert (whole.reasoning, whole.content.strip()) == ("I think.\nSo.", content.strip())
    assert whole.tool_calls() == calls
    for step in STEPS:
        (streamed,) = ask(replay, family, text, step=step, tools=TOOLS, **template(reasoning))
        assert streamed.tool_calls() == calls
        assert (streamed.reasoning, streamed.content.strip()) == (whole.reasoning, whole.content.strip())
        assert streamed.content == whole.content or not is_016(), "later versions send white space before a call"
        assert streamed.finish == whole.finish
