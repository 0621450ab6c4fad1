"""A stand-in for the engine as the parsers see it: names, a context length and a real prompt renderer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from handler.engine.api_routes import Route, Traits
from handler.engine.frontend_args import FrontendSettings
from handler.engine.generation.request_limits import RequestLimits
from handler.neuron.sampling_limits import ON_CPU, SamplingLimits
from tests.handler.scripted_tokenizer import PLAIN_TEMPLATE, scripted_prompts

CONTEXT = 100
MAX_TOKENS = 10**6


class ParsingEngine:
    """What `parse` reads of an engine."""

    def __init__(
        self,
        template: str | None = PLAIN_TEMPLATE,
        *,
        parts: bool = False,
        limits: SamplingLimits = ON_CPU,
        multimodal: bool = False,
        domains: tuple[str, ...] = (),
        max_output: int | None = MAX_TOKENS,
        default_output: int | None = None,
        max_characters: int | None = None,
    ) -> None:
        self.served_names = ("sample", "alias")
        self.prompts = replace(scripted_prompts(template, parts=parts), max_characters=max_characters)
        self.limits = RequestLimits(
            CONTEXT, self.prompts.vocab_size, max_output=max_output, default_output=default_output, sampling=limits
        )
        self.traits = Traits(multimodal=multimodal)
        self.front_end = FrontendSettings()
        self.max_sequences = 4
        self.allowed_media_domains = domains
        self.serving = ScriptedServing()

    def require_serving(self) -> ScriptedServing:
        return self.serving


class ScriptedServing:
    """vLLM's serving classes, as far as a body is checked before they see it.

    :ivar asked: what reached them.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[Route, dict[str, Any]]] = []

    def fields(self, route: Route) -> frozenset[str]:
        return frozenset({"messages", "prompt", "input", "tokens", "max_tokens", "model", "stream"})

    def request(self, route: Route, document: Mapping[str, Any], headers: Mapping[str, str]) -> SimpleNamespace:
        self.asked.append((route, dict(document)))
        return SimpleNamespace(route=route, stream=bool(document.get("stream")))


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
