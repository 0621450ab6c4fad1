"""Tokens to bytes: what a client reads of each schema's reply, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from handler.errors import EngineFailed
from handler.schemas import dispatch
from handler.schemas.reply import Reply
from tests.handler.schemas.parsing_engine import ParsingEngine, events_of

ENGINE: Any = ParsingEngine()
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "abc"}], "stream": True}
COMPLETION: dict[str, Any] = {"prompt": [1, 2, 3], "stream": True}
USAGE = {"stream_options": {"include_usage": True}}
EACH_USAGE = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
# What SSE, JSON and our own byte surgery could stumble on.
AWKWARD = ["\n\n", "\r", "\u2028", "data: [DONE]\n\n", "]", "]}", '"', "\\", "\0", "é", "😀", "[DONE]", ""]
DELTAS = st.lists(st.text(max_size=6) | st.sampled_from(AWKWARD), max_size=8)


def reply_to(document: dict[str, Any]) -> Reply:
    return dispatch.parse(document, ENGINE).reply


def streamed(document: dict[str, Any], deltas: Sequence[str], finish: str = "stop") -> list[Any]:
    """The events of a stream in which each delta is a token, and the last comes with the end."""
    reply = reply_to(document)
    *steps, last = deltas or [""]
    stream = reply.opening()
    for number, text in enumerate(steps):
        stream += reply.event(text, [number], None, None)
    stream += reply.event(last, [99], finish, None) + reply.closing()
    return events_of(stream)


def chat_text(events: list[Any]) -> str:
    return "".join(choice["delta"].get("content", "") for event in events for choice in event["choices"])


def completion_text(events: list[Any]) -> str:
    return "".join(choice["text"] for event in events for choice in event["choices"])


@pytest.mark.parametrize(
    ("document", "text"), [(CHAT, chat_text), (COMPLETION, completion_text)], ids=["chat", "completion"]
)
@settings(max_examples=150, deadline=None)
@example(deltas=AWKWARD, options={})
@example(deltas=[], options=EACH_USAGE)
@given(deltas=DELTAS, options=st.sampled_from([{}, USAGE, EACH_USAGE]))
def test_a_stream_is_valid_events_whose_text_is_the_whole(
    document: dict[str, Any], text: Callable[[list[Any]], str], deltas: list[str], options: dict[str, Any]
) -> None:
    *events, done = streamed({**document, **options}, deltas)
    assert done == "[DONE]"
    assert "[DONE]" not in [event for event in events if isinstance(event, str)]
    assert text(events) == "".join(deltas)
    assert len({(event["id"], event["created"], event["model"], event["object"]) for event in events}) == 1
    finishes = [choice["finish_reason"] for event in events for choice in event["choices"]]
    assert finishes[-1] == "stop"
    assert set(finishes[:-1]) <= {None}
    counts = [event["usage"] for event in events if event.get("usage")]
    tokens = max(len(deltas), 1)
    if not options:
        assert counts == []
    else:
        assert events[-1]["choices"] == []
        assert counts[-1]["prompt_tokens"] == 3
        assert counts[-1]["completion_tokens"] == tokens
        assert counts[-1]["total_tokens"] == 3 + tokens
    if options is EACH_USAGE:
        assert len(counts) == len(events), "every event carries a count"
        seen = [count["completion_tokens"] for count in counts]
        assert seen == sorted(seen)
    elif options is USAGE:
        assert len(counts) == 1


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_the_whole_reply_has_the_text_and_the_counts(text: str) -> None:
    chat = json.loads(reply_to(CHAT).whole(text, [5, 6], "length", None))
    assert chat["object"] == "chat.completion"
    assert chat["choices"][0]["message"]["content"] == text
    assert chat["choices"][0]["message"]["role"] == "assistant"
    completion = json.loads(reply_to(COMPLETION).whole(text, [5, 6], "length", None))
    assert completion["object"] == "text_completion"
    assert completion["choices"][0]["text"] == text
    for reply in (chat, completion):
        assert reply["choices"][0]["finish_reason"] == "length"
        assert (reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]) == (3, 2)
        assert reply["usage"]["total_tokens"] == 5


def test_a_step_without_text_makes_no_event() -> None:
    for document in (CHAT, COMPLETION):
        assert reply_to(document).event("", [1], None, None) == b""


@pytest.mark.parametrize("stop_reason", ["END", 128009, None])
def test_what_stopped_it_is_told(stop_reason: int | str | None) -> None:
    for document in (CHAT, COMPLETION):
        (event,) = events_of(reply_to(document).event("x", [1], "stop", stop_reason))
        assert event["choices"][0]["stop_reason"] == stop_reason
        assert (
            json.loads(reply_to(document).whole("x", [1], "stop", stop_reason))["choices"][0]["stop_reason"]
            == stop_reason
        )


@pytest.mark.parametrize("document", [CHAT, COMPLETION], ids=["chat", "completion"])
def test_a_broken_stream_ends_with_one_error_event_and_no_end_mark(document: dict[str, Any]) -> None:
    reply = reply_to(document)
    stream = reply.opening() + reply.event("x", [1], None, None) + reply.broken(EngineFailed("its process ended"))
    *_, last = events_of(stream)
    assert last["error"]["code"] == "engine_failed"
    assert "its process ended" in last["error"]["message"]
    assert b"[DONE]" not in stream
