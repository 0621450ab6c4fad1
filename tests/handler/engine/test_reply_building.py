"""Large replies are built while the loop goes on, and their bytes are those that pydantic writes in one call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from handler.engine.v1.serving.reply_building import UnbuiltReply, build, build_apart, json_pieces

TURNS = 50
WITHIN = 20.0
WHOLE = SimpleNamespace(stream=False)


class Entry(BaseModel):
    token: str
    logprob: float
    top: list[float] | None = None


class Scores(BaseModel):
    content: list[Entry]
    texts: list[str]


class Choice(BaseModel):
    index: int
    text: str
    scores: Scores | None = None
    calls: list[Entry] = []


class Document(BaseModel):
    id: str
    choices: list[Choice]
    usage: dict[str, int]
    last: Entry | None = None


def document(choices: int, entries: int) -> Document:
    def scores() -> Scores:
        entry = [Entry(token=f'"@{place}"', logprob=-place / 7, top=[1e-9 * place, -0.0]) for place in range(entries)]
        return Scores(content=entry, texts=["é"] * entries)

    made = [Choice(index=place, text='["@0"]', scores=scores()) for place in range(choices)]
    return Document(id="x", choices=made, usage={"tokens": 7}, last=Entry(token="", logprob=float("-inf")))


@pytest.mark.parametrize(("choices", "entries"), [(0, 0), (1, 1), (2, 64), (2, 65), (70, 3), (3, 200)])
def test_pieces_are_together_what_pydantic_writes_at_once(choices: int, entries: int) -> None:
    whole = document(choices, entries)
    expected = whole.model_dump_json()
    pieces = list(json_pieces(whole))
    assert "".join(pieces) == expected
    assert max(map(len, pieces)) < 20_000


def output(tokens: int, likeliest: int = 0) -> Any:
    scores = [dict.fromkeys(range(likeliest))] * tokens if likeliest else None
    return SimpleNamespace(outputs=[SimpleNamespace(token_ids=[1] * tokens, logprobs=scores)], prompt_logprobs=None)


async def outputs(*found: Any) -> AsyncIterator[Any]:
    for one in found:
        yield one


class Classes:
    """vLLM's serving objects, as far as they build a reply. Each waits until the loop has turned some times."""

    def __init__(self, turned: threading.Event) -> None:
        self.turned = turned
        self.threads: list[threading.Thread] = []

    async def chat_completion_full_generator(
        self, request: object, result_generator: AsyncIterator[Any]
    ) -> Document | UnbuiltReply:
        last = [found async for found in result_generator][-1]
        return self.build(last)

    def request_output_to_completion_response(self, final: list[Any], request: object) -> Document | UnbuiltReply:
        return self.build(final[-1])

    def build(self, last: Any) -> Document:
        self.threads.append(threading.current_thread())
        if len(last.outputs[0].token_ids) > 900:
            assert self.turned.wait(WITHIN), "the loop stands still while a reply is built"
        return document(1, 200)


async def turn(turned: threading.Event) -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
    turned.set()


@pytest.mark.parametrize("tokens", [10, 1001])
@pytest.mark.parametrize("chat", [True, False])
def test_the_loop_turns_while_a_large_reply_is_built(tokens: int, chat: bool) -> None:
    async def story() -> None:
        turned = threading.Event()
        classes = Classes(turned)
        state = SimpleNamespace(openai_serving_chat=classes, openai_serving_completion=classes)
        build_apart(state)
        if chat:
            reply = await classes.chat_completion_full_generator({}, outputs(output(3), output(tokens)))
        else:
            reply = classes.request_output_to_completion_response([output(tokens)], WHOLE)
        expected = document(1, 200)
        if tokens < 1000:
            assert reply == expected
            assert classes.threads == [threading.current_thread()]
            return
        assert isinstance(reply, UnbuiltReply)
        other = asyncio.create_task(turn(turned))
        built, encoded = await asyncio.to_thread(build, reply)
        assert encoded == expected.model_dump_json()
        assert built.id == "x"
        assert classes.threads != [threading.current_thread()]
        await other

    asyncio.run(asyncio.wait_for(story(), WITHIN))


def test_a_stream_of_beams_is_built_at_once() -> None:
    """vLLM 0.16 makes one event of the reply that this returns."""
    turned = threading.Event()
    turned.set()
    classes = Classes(turned)
    build_apart(SimpleNamespace(openai_serving_completion=classes))
    stream = SimpleNamespace(stream=True)
    assert isinstance(classes.request_output_to_completion_response([output(1001)], stream), Document)


def test_log_probabilities_count_towards_a_large_reply() -> None:
    async def story() -> None:
        classes = Classes(threading.Event())
        build_apart(SimpleNamespace(openai_serving_chat=classes))
        few = await classes.chat_completion_full_generator({}, outputs(output(45, 20)))
        many = await classes.chat_completion_full_generator({}, result_generator=outputs(output(50, 20)))
        assert (type(few), type(many)) == (Document, UnbuiltReply)

    asyncio.run(story())
