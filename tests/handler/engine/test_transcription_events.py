"""The events of a streamed transcription have the fields of OpenAI's API and of vLLM's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from handler.engine.v1.serving import transcription_events

CHUNK = {"id": "a", "object": "transcription.chunk", "model": "m", "choices": [{"delta": {"content": "Good"}}]}
LAST = {**CHUNK, "choices": [{"delta": {"content": " day"}, "finish_reason": "stop"}]}
USAGE = {**CHUNK, "choices": [], "usage": {"prompt_tokens": 3}}
ERROR = 'data: {"error": {"message": "gone"}}\n\n'


def events_of(*frames: str) -> list[Any]:
    async def source() -> AsyncIterator[str]:
        for frame in frames:
            yield frame

    async def collected() -> list[str]:
        return [event async for event in transcription_events.events(source())]

    return [text.removeprefix("data: ").strip() for text in asyncio.run(collected())]


def test_a_stream_is_read_by_clients_of_either_api() -> None:
    *events, done = events_of(*(f"data: {json.dumps(chunk)}\n\n" for chunk in (CHUNK, LAST, USAGE)), "data: [DONE]\n\n")
    assert done == "[DONE]"
    first, second, usage, whole = map(json.loads, events)
    assert [(event["type"], event["delta"]) for event in (first, second)] == [
        ("transcript.text.delta", "Good"),
        ("transcript.text.delta", " day"),
    ]
    assert (whole["type"], whole["text"]) == ("transcript.text.done", "Good day")
    assert usage == USAGE
    assert "usage" not in whole
    texts = [choice["delta"]["content"] for event in (first, second, usage, whole) for choice in event["choices"]]
    assert "".join(texts) == "Good day"


def test_an_error_is_passed_on_as_it_is() -> None:
    assert events_of(ERROR) == [ERROR.removeprefix("data: ").strip()]
