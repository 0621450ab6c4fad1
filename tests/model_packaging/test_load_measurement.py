"""What `bench` measures on scripted streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from model_packaging import load_measurement
from model_packaging.client import EndpointClient
from model_packaging.load_measurement import measure, summary

CHAT = {"messages": [{"role": "user", "content": "x"}]}


class Clock:
    """Time passes only before a token: one second each."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Stream:
    """The deltas of one choice, then the number of tokens, as boto3 yields a stream."""

    def __init__(self, clock: Clock, deltas: list[dict[str, Any]]) -> None:
        self._clock, self._deltas = clock, deltas

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield self._part({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        for delta in self._deltas:
            self._clock.now += 1
            yield self._part({"choices": [{"index": 0, "delta": delta}]})
        yield self._part({"choices": [], "usage": {"completion_tokens": len(self._deltas)}})
        yield {"PayloadPart": {"Bytes": b"data: [DONE]\n\n"}}

    def _part(self, event: dict[str, Any]) -> dict[str, Any]:
        return {"PayloadPart": {"Bytes": b"data: " + json.dumps(event).encode() + b"\n\n"}}

    def close(self) -> None: ...


class Runtime:
    def __init__(self, clock: Clock, deltas: list[dict[str, Any]]) -> None:
        self._clock, self._deltas = clock, deltas

    def invoke_endpoint_with_response_stream(self, **request: Any) -> dict[str, Any]:
        return {"Body": Stream(self._clock, self._deltas)}


def measured(monkeypatch: pytest.MonkeyPatch, *deltas: dict[str, Any]) -> dict[str, Any]:
    clock = Clock()
    monkeypatch.setattr(load_measurement, "time", clock)
    client = EndpointClient("x", runtime=Runtime(clock, list(deltas)))  # type: ignore[arg-type]  # a stand-in
    samples, seconds = measure(client, CHAT, 1, 1, lambda done, rate: None)
    return summary(samples, seconds)


@pytest.mark.parametrize(
    "deltas",
    [
        [{"content": "a"}] * 5,
        [{"reasoning": "a"}] * 5,
        [{"reasoning_content": "a"}] * 3 + [{"content": "b"}] * 2,
        [{"tool_calls": [{"index": 0, "function": {"arguments": "a"}}]}] * 5,
    ],
    ids=["text", "thinking", "thinking and text", "tool call"],
)
def test_every_token_counts_whatever_it_is_for(deltas: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    run = measured(monkeypatch, *deltas)
    assert (run["failed"], run["errors"]) == (0, {})
    assert run["time_to_first_token"]["p50"] == 1
    assert run["time_between_tokens"]["p50"] == 1
    assert run["tokens_per_second"] == 1


def test_a_reply_without_a_token_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = measured(monkeypatch, {"content": ""})
    assert (run["failed"], run["errors"]) == (1, {"no text": 1})
