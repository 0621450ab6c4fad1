"""The events of a streamed response (/v1/responses) as bytes, with the places they speak of put right.

vLLM 0.16 counts `content_index` on after a part has begun, and announces the message that follows a reasoning under
the reasoning's own `output_index` (vllm/entrypoints/openai/responses/serving.py, _process_simple_streaming_events): a
client that goes by them, as openai's `responses.stream` does, fails with an IndexError. There is one part in each item,
and an item's place is the number of those that began before it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel

BEGINS = "response.output_item.added"


async def events(source: Any, *, fix: bool) -> AsyncIterator[str]:
    """Server-sent events (vllm/entrypoints/openai/responses/api_router.py).

    :param fix: not where vLLM counts rightly (gpt-oss has a way of its own).
    """
    items = 0
    try:
        async for event in source:
            kind = getattr(event, "type", None)
            if kind is None:  # an ErrorResponse
                yield f"data: {event.model_dump_json()}\n\n"
                return
            items += kind == BEGINS
            if fix:
                put_right(event, items - 1)
            yield f"event: {kind}\ndata: {event.model_dump_json(indent=None)}\n\n"
    finally:
        await source.aclose()


def put_right(event: BaseModel, item: int) -> None:
    """:param item: the place of the item that is being made."""
    if hasattr(event, "content_index"):
        event.content_index = 0
    if hasattr(event, "output_index"):
        event.output_index = max(item, 0)
