"""What one request may ask of the engine: checked here, so that nothing reaches vLLM that would end it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from handler.engine.generation import grammar_limits, sampling_check
from handler.engine.generation.generation import Generation, Grammar
from handler.errors import InvalidField, PromptOverLimit, PromptTooLong
from handler.neuron.sampling_limits import ON_CPU, SamplingLimits


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """In tokens.

    :param max_model_len: context: what a sequence may have before it is ended.
    :param vocab_size: one more than the largest token id.
    :param max_prompt: the longest prompt, where it is shorter than the context.
    :param max_output: most tokens that one request may ask for; None: what the context leaves.
    :param default_output: of a request that does not say, by the model's own configuration.
    :param sampling: what the device can do.
    """

    max_model_len: int
    vocab_size: int
    max_prompt: int | None = None
    max_output: int | None = None
    default_output: int | None = None
    sampling: SamplingLimits = ON_CPU

    def check(self, generation: Generation) -> int:
        """The most tokens that it may generate: as asked for, or what is left.

        :raises PromptTooLong: prompt and answer do not fit the context.
        :raises PromptOverLimit: no graph was compiled for a prompt of this length.
        :raises InvalidField: a parameter that the device ignores, a grammar beyond its limits, a stop token past the
            vocabulary, or more tokens than one request may have.
        """
        length, sampling = len(generation.prompt), generation.sampling
        sampling_check.check(sampling, self.sampling)
        if sampling.grammar is not None:
            grammar_limits.check(_read(sampling.grammar), sampling.grammar.field)
        self.check_stop_tokens(sampling.stop_token_ids)
        if self.max_prompt is not None and length > self.max_prompt:
            raise PromptOverLimit(length, self.max_prompt)
        room = self.max_model_len - length
        if room < 1 or (sampling.max_tokens or 1) > room:
            param = "prompt" if room < 1 else sampling.max_tokens_field
            raise PromptTooLong(length, sampling.max_tokens, self.max_model_len, param)
        self.check_max_tokens(sampling.max_tokens, sampling.max_tokens_field)
        return sampling.max_tokens or min(room, self.max_output or room, self.default_output or room)

    def check_stop_tokens(self, tokens: Sequence[int]) -> None:
        """:raises InvalidField: one past the vocabulary, which with min_tokens ends vLLM's engine (0.16.0)."""
        for token in tokens:
            if token >= self.vocab_size:
                raise InvalidField("stop_token_ids", f"{token} is outside 0 to {self.vocab_size - 1}")

    def check_max_tokens(self, tokens: int | None, field: str) -> None:
        """:raises InvalidField: more than one request may ask for (`max_output_tokens`)."""
        if self.max_output is not None and (tokens or 1) > self.max_output:
            problem = f"{tokens} is more than this endpoint generates for one request, {self.max_output}"
            raise InvalidField(field, problem)


def _read(grammar: Grammar) -> object:
    """What its limits are about: the texts in a schema, or the expression itself."""
    try:
        return json.loads(grammar.text) if grammar.kind == "json" else grammar.text
    except ValueError:
        return grammar.text
