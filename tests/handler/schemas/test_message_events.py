"""The events of a streamed message, whatever the order of the chunks of its chat."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from handler.schemas.anthropic.message_events import MessageEvents

ARGUMENTS = '{"city": "Bern"}'


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def told(*deltas: dict[str, Any]) -> list[dict[str, Any]]:
    message = MessageEvents()
    data = b"".join(message.of(chunk(delta)) for delta in deltas) + message.of(chunk({}, "tool_calls")) + message.end()
    return [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: ")]


def call(index: int, arguments: str, *, begins: bool) -> dict[str, Any]:
    named = {"id": f"call-{index}"} if begins else {}
    function = {"arguments": arguments, **({"name": f"tool-{index}"} if begins else {})}
    return {"tool_calls": [{"index": index, **named, "function": function}]}


def test_blocks_of_whole_calls_follow_each_other() -> None:
    """Anthropic's client for TypeScript takes the last block for the one that ends."""
    events = told(*(call(index, ARGUMENTS, begins=True) for index in range(3)), {"content": "a"})
    begun = [event["index"] for event in events if event["type"] == "content_block_start"]
    ended = [event["index"] for event in events if event["type"] == "content_block_stop"]
    order = [event["type"] for event in events if event["type"].startswith("content_block_st")]
    assert begun == ended == [0, 1, 2, 3]
    assert order == ["content_block_start", "content_block_stop"] * 4


@given(st.lists(st.sampled_from([0, 1, 2, "text"]), max_size=12))
def test_each_call_is_one_block_with_all_of_its_arguments(order: list[int | str]) -> None:
    begun: dict[int, int] = {}
    deltas: list[dict[str, Any]] = []
    for kind in order:
        if isinstance(kind, str):
            deltas.append({"content": "a"})
            continue
        at = begun.get(kind, -1) + 1
        deltas.append(call(kind, ARGUMENTS[at : at + 1], begins=at == 0))
        begun[kind] = at
    deltas += [call(index, ARGUMENTS[at + 1 :], begins=False) for index, at in begun.items()]  # the rest comes last
    blocks: dict[int, dict[str, Any]] = {}
    written: dict[int, str] = {}
    ended = []
    for event in told(*deltas):
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks[event["index"]] = event["content_block"]
        elif event["type"] == "content_block_delta":
            assert event["index"] not in ended
            text = event["delta"].get("partial_json", event["delta"].get("text"))
            written[event["index"]] = written.get(event["index"], "") + text
        elif event["type"] == "content_block_stop":
            ended.append(event["index"])
    assert sorted(ended) == sorted(blocks)
    calls = {block["name"]: (block["id"], written[index]) for index, block in blocks.items() if "name" in block}
    assert calls == {f"tool-{index}": (f"call-{index}", ARGUMENTS) for index in begun}
    assert "".join(written[index] for index, block in blocks.items() if "name" not in block) == "a" * order.count(
        "text"
    )
