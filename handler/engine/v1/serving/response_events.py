"""Writes the events of a streamed response (/v1/responses), and fixes their indexes and the last one's type.

Four defects of vLLM 0.16 make clients and requests fail.

It increases `content_index` after a part has begun, and gives the message after a reasoning item the same
`output_index` as the reasoning (vllm/entrypoints/openai/responses/serving.py, _process_simple_streaming_events). A
client that uses the indexes, as openai's `responses.stream` does, fails with an IndexError. Each item has one part, so
`content_index` is 0. An item's `output_index` is the number of items that began before it.

It builds the first two events from a response in which `text.format.schema` has its Python name, `schema_`
(responses/serving.py, `model_dump`). OpenAI's types reject that, so no stream with a JSON schema begins.

It streams the call of a tool as text with its markup, and has the call as an item in the last event only. Such a stream
is rejected. Later versions have events for calls (responses/streaming_events.py).

It says of a response that the limit of tokens has cut off that it is completed (0.16.0 to 0.32.0).
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from typing import Any, NoReturn

from pydantic import BaseModel
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest, ResponsesResponse

from handler.errors import GenerationFailed, UnsupportedField

STREAMS_CALLS = importlib.util.find_spec("vllm.entrypoints.openai.responses.streaming_events") is not None
COMPLETED, INCOMPLETE = "response.completed", "response.incomplete"
BEGINS = "response.output_item.added"
# vLLM sends these before the engine has accepted the request.
OPENING = ("response.created", "response.in_progress")


def check_tools(request: ResponsesRequest, serving: Any) -> None:
    """:raises UnsupportedField: the stream would have the call of a tool as text, whose whole reply is an item."""
    if STREAMS_CALLS or serving.use_harmony or not request.stream or not request.tools or serving.parser is None:
        return
    parsed = serving.parser.tool_parser_cls is not None if request.tool_choice == "auto" else True
    if parsed and request.tool_choice != "none":
        fix = "this vLLM streams the call of a tool as text: leave 'stream' out, or send 'tool_choice': 'none'"
        raise UnsupportedField("tools", fix)


def fail(_error: Exception) -> NoReturn:
    """Replaces `_convert_generation_error_to_streaming_response` of vLLM's serving object.

    vLLM makes an event of the result, which no type of event fits. The client then gets 400 for its request, whose
    engine has failed (0.16.0 to 0.32.0, responses/serving.py).

    :raises GenerationFailed: always.
    """
    raise GenerationFailed("an internal error")


async def events(source: Any, *, fix: bool, single_call: bool = False) -> AsyncIterator[str]:
    """Server-sent events (vllm/entrypoints/openai/responses/api_router.py).

    The first two wait for the third. So a request that the engine rejects gets a status, as it does without a stream.

    :param fix: whether to fix the indexes. Those of gpt-oss, which vLLM writes with other code, are correct.
    :param single_call: omit all calls of tools but the first, as `NamedResponse` does. vLLM has them (0.24.0, 0.29.0).
    """
    items = calls = omitted = 0
    omitting = False
    held: list[str] = []
    try:
        async for event in source:
            kind = getattr(event, "type", None)
            if kind is None:  # an ErrorResponse
                yield f"data: {event.model_dump_json()}\n\n"
                return
            if kind == COMPLETED and event.response.status == "incomplete":
                kind = event.type = INCOMPLETE
            if single_call and kind == BEGINS:
                calls += event.item.type == "function_call"
                omitting = event.item.type == "function_call" and calls > 1
            if omitting and getattr(event, "output_index", None) is not None:
                omitted += 1
                continue
            items += kind == BEGINS
            if omitted:
                event.sequence_number -= omitted
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
    """A response whose dump has the names of OpenAI's API, and one call if `parallel_tool_calls` is false.

    vLLM keeps the first call of a chat, but all of a response (0.16.0).
    """

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        items: list[Any] = self.output
        calls = [item for item in items if item.type == "function_call"]
        if not self.parallel_tool_calls:
            items[:] = [item for item in items if item.type != "function_call" or item is calls[0]]

    def model_dump(self, **options: Any) -> dict[str, Any]:
        document: dict[str, Any] = super().model_dump(**{"by_alias": True, **options})
        return document


def fix_indexes(event: BaseModel, item: int) -> None:
    """:param item: the index of the current item."""
    if hasattr(event, "content_index"):
        event.content_index = 0
    if hasattr(event, "output_index"):
        event.output_index = max(item, 0)
