"""A stand-in for the engine as the parsers see it: names, a context length and a real prompt renderer."""

from __future__ import annotations

import json
from typing import Any

from scripted_tokenizer import PLAIN_TEMPLATE, scripted_prompts

from handler.neuron.sampling_limits import ON_CPU, SamplingLimits

CONTEXT = 100


class ParsingEngine:
    """What `parse` reads of an engine."""

    def __init__(
        self, template: str | None = PLAIN_TEMPLATE, *, parts: bool = False, limits: SamplingLimits = ON_CPU
    ) -> None:
        self.served_names = ("sample", "alias")
        self.max_model_len = CONTEXT
        self.limits = limits
        self.prompts = scripted_prompts(template, parts=parts)


def events_of(stream: bytes) -> list[Any]:
    """The events of a server-sent event stream, read as strictly as a client may; "[DONE]" stays a string.

    :raises AssertionError: bytes that are no event, or an event that is no JSON.
    """
    text = stream.decode()
    assert text == "" or text.endswith("\n\n"), "the last event is cut off"
    events: list[Any] = []
    for block in text.split("\n\n")[:-1]:
        assert block.startswith("data: "), f"no event: {block[:80]!r}"
        data = block.removeprefix("data: ")
        assert "\n" not in data
        assert "\r" not in data
        events.append(data if data == "[DONE]" else json.loads(data))
    return events
