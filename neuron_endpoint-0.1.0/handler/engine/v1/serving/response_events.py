"""Writes the events of a streamed response (/v1/responses), and fixes their indexes.

Two defects of vLLM 0.16 make clients and requests fail.

It increases `content_index` after a part has begun, and gives the message after a reasoning item the same
`output_index` as the reasoning (vllm/entrypoints/openai/responses/serving.py, _process_simple_streaming_events). A
client that uses the indexes, as openai's `responses.stream` does, fails with an IndexError. Each item has one part, so
`content_index` is 0. An item's `output_index` is the number of items that began before it.

It builds the first two events from a response in which `text.format.schema` has its Python name, `schema_`
(responses/serving.py, `model_dump`). OpenAI's types reject that, so no stream with a JSON schema begins.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel
from vllm.entrypoints.openai.responses.protocol import ResponsesResponse

BEGINS = "response.output_item.added"
# vLLM sends these before the engine has accepted the request.
OPENING = ("response.created", "response.in_progress")


async def events(source: Any, *, fix: bool) -> AsyncIterator[str]:
    """Server-sent events (vllm/entrypoints/openai/responses/api_router.py).

    The first two wait for the third. So a request that the engine rejects gets a status, as it does without a stream.

    :param fix: whether to fix the indexes. Those of gpt-oss, which vLLM writes with other code, are correct.
    """
    items = 0
    held: list[str] = []
    try:
        async for event in source:
            kind = getattr(event, "type", None)
            if kind is None:  # an ErrorResponse
                yield f"data: {event.model_dump_json()}\n\n"
                return
            items += kind == BEGINS
            if fix:
                fix_indexes(event, items - 1)
            held.append(f"event: {kind}\ndata: {event.model_dump_json(by_alias=True)}\n\n")
            if kind not in OPENING:
                for text in held:
                    yield text
                held.clear()
        for text in held:
            yield text
    finally:
        await source.aclose()


class NamedResponse(ResponsesResponse):  # type: ignore[misc]  # vLLM is not typed here
    """A response whose dump has the names of OpenAI's API."""

    def model_dump(self, **options: Any) -> dict[str, Any]:
        document: dict[str, Any] = super().model_dump(**{"by_alias": True, **options})
        return document


def fix_indexes(event: BaseModel, item: int) -> None:
    """:param item: the index of the current item."""
    if hasattr(event, "content_index"):
        event.content_index = 0
    if hasattr(event, "output_index"):
        event.output_index = max(item, 0)
