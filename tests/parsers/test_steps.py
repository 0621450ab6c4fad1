"""On every V1 version: what a step of several tokens streams is what a whole reply has.

A step has them with speculative decoding, and when the event loop was busy. Parsers expect one token at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.parsers.conftest import ON_EVERY_VLLM
from tests.parsers.reply_formats import TOOL_FORMATS
from tests.parsers.said import ask
from tests.parsers.test_tool_parsers import CHATS, STEPS, TOOLS

if TYPE_CHECKING:
    import openai

pytestmark = [pytest.mark.engine]


@pytest.mark.parametrize("chat", ["one", "parallel", "unicode", "quotes", "plain"])
@pytest.mark.parametrize("parser", ON_EVERY_VLLM)
def test_calls_are_streamed_whole_however_many_tokens_a_step_has(replay: openai.OpenAI, parser: str, chat: str) -> None:
    content, calls = CHATS[chat]
    text = content + (TOOL_FORMATS[parser].write(calls) if calls else "")
    for step in STEPS:
        (streamed,) = ask(replay, parser, text, step=step, tools=TOOLS)
        assert (streamed.tool_calls(), streamed.content.strip()) == (calls, content.strip())
        assert streamed.finish == ("tool_calls" if calls else "stop")
