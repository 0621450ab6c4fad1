"""Long conversations are rendered in a thread, short ones on the loop."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from handler.engine.api_routes import PLAIN, Route


class ScriptedRenderer:
    """As vLLM's: one method for threads, one for the loop."""

    def render_messages(self, messages: list[Any], params: Any) -> tuple[int, int]:
        return len(messages), threading.get_ident()

    async def render_messages_async(self, messages: list[Any], params: Any) -> tuple[int, int]:
        return self.render_messages(messages, params)


def test_where_a_conversation_is_rendered() -> None:
    from handler.engine.v1.serving.serving_start import FEW, render_in_threads

    renderer = ScriptedRenderer()
    render_in_threads(renderer)
    cases: tuple[tuple[int, list[Any] | None, bool], ...] = (
        (1, None, False),
        (FEW, [], False),
        (FEW + 1, None, True),
        (1, [{}] * FEW, True),
    )
    for messages, tools, in_thread in cases:
        params = SimpleNamespace(chat_template_kwargs={"tools": tools})
        count, thread = asyncio.run(renderer.render_messages_async([{}] * messages, params))
        assert (count, thread != threading.get_ident()) == (messages, in_thread)


def test_every_api_has_the_default_arguments_of_the_template() -> None:
    """vLLM 0.16 passes None for responses and for the count of tokens."""
    from handler.engine.v1.serving.serving_start import fill_template_defaults

    responses = SimpleNamespace(_preprocess_chat=lambda request, **named: (request, named))
    fill_template_defaults(SimpleNamespace(responses=responses, log_stats=True), {"think": False})
    given = {"default_template_kwargs": {"think": False}}
    assert responses._preprocess_chat("hello", default_template_kwargs=None) == ("hello", given)
    assert responses._preprocess_chat("hello") == ("hello", {})


@pytest.mark.parametrize(
    ("given", "expected"), [(None, {"think": False, "a": 1}), ({"think": True}, {"think": True, "a": 1})]
)
def test_a_body_with_messages_has_them_on_any_route(given: Any, expected: dict[str, Any]) -> None:
    """vLLM 0.24 and later give pooling models none."""
    from handler.engine.v1.serving.serving_classes import VllmServing

    pooling = SimpleNamespace(create_embedding=lambda: None)
    state: Any = SimpleNamespace(
        openai_serving_models=SimpleNamespace(), openai_serving_embedding=pooling, serving_embedding=pooling
    )
    llm: Any = None
    traits = replace(PLAIN, tasks=frozenset({"embed"}))
    serving = VllmServing(llm, state, traits, {"think": False, "a": 1})
    body = {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": given}
    prepared = serving.request(Route.EMBEDDINGS, body, {})
    assert prepared.request.chat_template_kwargs == expected
    assert not hasattr(serving.request(Route.EMBEDDINGS, {"input": "a"}, {}).request, "chat_template_kwargs")
