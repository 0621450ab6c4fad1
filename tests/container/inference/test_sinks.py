"""Each event of a stream is a chunk of its own: litellm takes a chunk for an event, and loses all that follow two."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from container.inference.sinks import EventSink
from handler.engine.api_routes import Route
from handler.schemas import dispatch
from handler.schemas.anthropic.message_reply import MessageReply
from handler.schemas.openai.vllm_path import ServedReply
from handler.schemas.reply import Reply
from handler.schemas.tgi_lmi.request_options import RequestOptions
from tests.handler.schemas.parsing_engine import ParsingEngine

ENGINE: Any = ParsingEngine()


@dataclass(slots=True)
class RecordedExchange:
    """An exchange that keeps its chunks."""

    chunks: list[bytes] = field(default_factory=list)

    def write(self, *events: bytes) -> None:
        self.chunks += [event for event in events if event]


def chunks_of(reply: Reply, *steps: tuple[str, list[int]]) -> list[bytes]:
    return asyncio.run(_chunks_of(reply, steps))


async def _chunks_of(reply: Reply, steps: Sequence[tuple[str, list[int]]]) -> list[bytes]:
    exchange: Any = RecordedExchange()
    sink = EventSink(reply, exchange=exchange)
    for text, token_ids in steps:
        sink.push(text, token_ids, None, None)
    sink.push("", [], "length", None)
    return [*exchange.chunks, *sink.last]


def inputs_reply(formatter: str) -> Reply:
    call = dispatch.parse({"inputs": "abc", "stream": True}, ENGINE, RequestOptions(output_formatter=formatter))
    return call.reply


@pytest.mark.parametrize("formatter", ["sse", "jsonlines"])
def test_a_step_of_several_tokens_is_a_chunk_for_each(formatter: str) -> None:
    chunks = chunks_of(inputs_reply(formatter), ("a", [97]), ("bc", [98, 99]), ("d", [100]))
    events = [json.loads(chunk.removeprefix(b"data: ")) for chunk in chunks]
    assert "".join(event["token"]["text"] for event in events) == events[-1]["generated_text"] == "abcd"


def test_the_end_of_a_block_and_the_next_one_are_chunks_of_their_own() -> None:
    deltas = [{"content": "", "role": "assistant"}, {"reasoning": "hm"}, {"content": "Yes"}, {"content": "."}]
    chat = [{"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    steps = [(f"data: {json.dumps(chunk)}\n\n", list[int]()) for chunk in chat]
    chunks = chunks_of(MessageReply(ServedReply(Route.CHAT)), *steps)
    assert [chunk.count(b"event: ") for chunk in chunks] == [1] * len(chunks)
    assert b"".join(chunks).count(b"content_block_start") == 4, "of thinking and of text: as event and as type"
