"""Long conversations are rendered in a thread, short ones on the loop."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from handler.engine.v1.serving.serving_start import FEW, fill_template_defaults, render_in_threads


class ScriptedRenderer:
    """As vLLM's: one method for threads, one for the loop."""

    def render_messages(self, messages: list[Any], params: Any) -> tuple[int, int]:
        return len(messages), threading.get_ident()

    async def render_messages_async(self, messages: list[Any], params: Any) -> tuple[int, int]:
        return self.render_messages(messages, params)


@pytest.mark.parametrize(
    ("messages", "tools", "in_thread"),
    [(1, None, False), (FEW, [], False), (FEW + 1, None, True), (1, [{}] * FEW, True)],
)
def test_where_a_conversation_is_rendered(messages: int, tools: list[Any] | None, in_thread: bool) -> None:
    renderer = ScriptedRenderer()
    render_in_threads(renderer)
    params = SimpleNamespace(chat_template_kwargs={"tools": tools})
    count, thread = asyncio.run(renderer.render_messages_async([{}] * messages, params))
    assert (count, thread != threading.get_ident()) == (messages, in_thread)


def test_every_api_has_the_default_arguments_of_the_template() -> None:
    """vLLM 0.16 passes None for responses and for the count of tokens."""
    responses = SimpleNamespace(_preprocess_chat=lambda request, **named: (request, named))
    fill_template_defaults(SimpleNamespace(responses=responses, log_stats=True), {"think": False})
    given = {"default_template_kwargs": {"think": False}}
    assert responses._preprocess_chat("hello", default_template_kwargs=None) == ("hello", given)
    assert responses._preprocess_chat("hello") == ("hello", {})
