"""A streamed response's events speak of the places that a client finds its items and parts at."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, Field

from handler.engine.api_routes import PLAIN, Route
from handler.errors import UnsupportedField

pytestmark = pytest.mark.engine


class Item(BaseModel):
    type: str
    output_index: int


class Part(Item):
    content_index: int


class Response(BaseModel):
    status: str


class End(BaseModel):
    type: str = "response.completed"
    response: Response


class Event(BaseModel):
    """Any event of vLLM's: `item` and `response` are read, and not written here."""

    type: str
    sequence_number: int = 0
    output_index: int | None = None
    item: Any = Field(default=None, exclude=True)
    response: Any = Field(default=None, exclude=True)


class Error(BaseModel):
    error: str


# As vLLM 0.16 numbers a reasoning and the message after it.
WRONG = [
    Item(type="response.output_item.added", output_index=0),
    Part(type="response.content_part.added", output_index=0, content_index=0),
    Part(type="response.reasoning_text.delta", output_index=0, content_index=1),
    Item(type="response.output_item.done", output_index=0),
    Item(type="response.output_item.added", output_index=0),
    Part(type="response.content_part.added", output_index=1, content_index=0),
    Part(type="response.output_text.delta", output_index=1, content_index=1),
    Part(type="response.content_part.done", output_index=1, content_index=2),
]


async def made(given: list[BaseModel]) -> AsyncIterator[BaseModel]:
    for event in given:
        yield event.model_copy()


def streamed(given: list[Any], *, fix: bool, single_call: bool = False) -> list[str]:
    from handler.engine.v1.serving.response_events import events  # imports vLLM

    async def collect() -> list[str]:
        return [event async for event in events(made(given), fix=fix, single_call=single_call)]

    return asyncio.run(collect())


def places(frames: list[str]) -> list[tuple[int, int | None]]:
    documents = [json.loads(frame.partition("data: ")[2]) for frame in frames]
    return [(document["output_index"], document.get("content_index")) for document in documents]


def test_items_are_counted_and_each_has_one_part() -> None:
    frames = streamed(WRONG, fix=True)
    assert frames[0].startswith("event: response.output_item.added\ndata: {")
    assert places(frames) == [(0, None), (0, 0), (0, 0), (0, None), (1, None), (1, 0), (1, 0), (1, 0)]
    assert places(streamed(WRONG, fix=False))[-1] == (1, 2)


def test_an_error_is_the_last_frame() -> None:
    assert streamed([WRONG[0], Error(error="a"), WRONG[1]], fix=True)[1:] == ['data: {"error":"a"}\n\n']


async def rejected() -> AsyncIterator[BaseModel]:
    yield Item(type="response.created", output_index=0)
    yield Item(type="response.in_progress", output_index=0)
    raise ValueError("the engine rejects the request")


def test_nothing_is_sent_before_the_engine_has_accepted_the_request() -> None:
    """Found by the fuzz: a stream had begun with 200 when the engine rejected its schema."""
    frames: list[str] = []

    from handler.engine.v1.serving.response_events import events  # imports vLLM

    async def collect() -> None:
        async for frame in events(rejected(), fix=True):
            frames.append(frame)

    with pytest.raises(ValueError, match="rejects"):
        asyncio.run(collect())
    assert frames == []


def test_the_first_events_come_with_the_third_or_at_the_end() -> None:
    opening = [Item(type=kind, output_index=0) for kind in ("response.created", "response.in_progress")]
    kinds = [frame.split()[1] for frame in streamed([*opening, WRONG[0]], fix=True)]
    assert kinds == ["response.created", "response.in_progress", "response.output_item.added"]
    assert len(streamed(opening, fix=True)) == 2


@pytest.mark.parametrize(
    ("status", "kind"), [("completed", "response.completed"), ("incomplete", "response.incomplete")]
)
def test_the_last_event_says_whether_the_response_was_cut_off(status: str, kind: str) -> None:
    (frame,) = streamed([End(response=Response(status=status))], fix=False)
    assert frame.splitlines()[0] == f"event: {kind}"
    assert json.loads(frame.partition("data: ")[2])["type"] == kind


TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]


@pytest.mark.parametrize(
    ("fields", "parser", "rejected"),
    [
        ({"tools": TOOLS}, "hermes", True),
        ({"tools": TOOLS, "tool_choice": "required"}, None, True),
        ({"tools": TOOLS, "tool_choice": "none"}, "hermes", False),
        ({"tools": TOOLS}, None, False),  # the text is the reply, whole and streamed
        ({"tools": TOOLS, "stream": False}, "hermes", False),
        ({}, "hermes", False),
    ],
)
def test_no_call_of_a_tool_is_streamed_as_text(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], parser: str | None, rejected: bool
) -> None:
    from handler.engine.v1.serving import response_events
    from handler.engine.v1.serving.serving_classes import VllmServing

    responses = SimpleNamespace(
        use_harmony=False, parser=SimpleNamespace(tool_parser_cls=parser), create_responses=lambda: None
    )
    state: Any = SimpleNamespace(openai_serving_models=SimpleNamespace(), openai_serving_responses=responses)
    llm: Any = None
    serving, body = VllmServing(llm, state, PLAIN, {}), {"input": "a", "stream": True, **fields}
    monkeypatch.setattr(response_events, "STREAMS_CALLS", False)
    with pytest.raises(UnsupportedField, match="leave 'stream' out") if rejected else nullcontext():
        serving.request(Route.RESPONSES, body, {})
    monkeypatch.setattr(response_events, "STREAMS_CALLS", True)
    assert serving.request(Route.RESPONSES, body, {})


def test_a_response_without_parallel_calls_has_the_first_one() -> None:
    from handler.engine.v1.serving.response_events import NamedResponse

    calls = [SimpleNamespace(type="function_call", call_id=each) for each in "ab"]
    for parallel, kept in ((False, calls[:1]), (True, calls)):
        assert NamedResponse.model_construct(output=[*calls], parallel_tool_calls=parallel).output == kept


def test_its_stream_has_no_event_of_the_others() -> None:
    given = [Event(type="response.created")]
    for place, kind in enumerate(("message", "function_call", "function_call")):
        item = {"type": kind, "id": place}
        given.append(Event(type="response.output_item.added", output_index=place, item=SimpleNamespace(**item)))
        given.append(Event(type=f"response.{kind}.delta", output_index=place))
    given.append(Event(type="response.completed", response=SimpleNamespace(status="completed")))
    for number, event in enumerate(given):
        event.sequence_number = number
    frames = streamed(given, fix=True, single_call=True)
    assert [json.loads(frame.partition("data: ")[2])["sequence_number"] for frame in frames] == list(range(6))
    kinds = [frame.split()[1].removeprefix("response.") for frame in frames]
    assert kinds == [
        *("created", "output_item.added", "message.delta", "output_item.added", "function_call.delta", "completed"),
    ]
    assert len(streamed(given, fix=True)) == len(given)


def test_an_earlier_conversation_that_vllm_would_drop_is_refused() -> None:
    from handler.engine.v1.serving import response_items

    earlier: Any = SimpleNamespace(input="What is my name?", previous_input_messages=[{"role": "user"}])
    with pytest.raises(UnsupportedField, match="'input'") as caught:
        response_items.check(earlier)
    assert caught.value.param == "previous_input_messages"
