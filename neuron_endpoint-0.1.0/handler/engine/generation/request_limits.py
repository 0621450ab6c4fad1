"""The limits of one request. They are checked before vLLM gets the request, because some values would crash vLLM."""

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
    """The limits of one request. Lengths are in tokens.

    :param max_model_len: the context: the longest sequence of prompt and output.
    :param vocab_size: one more than the largest token id.
    :param max_prompt: the longest prompt, if it must be shorter than the context.
    :param max_output: the most output tokens that a request may request. None: as many as the context has room for.
    :param default_output: the output tokens of a request that gives no number, from the model's own configuration.
    :param sampling: which sampling parameters the device supports.
    """

    max_model_len: int
    vocab_size: int
    max_prompt: int | None = None
    max_output: int | None = None
    default_output: int | None = None
    sampling: SamplingLimits = ON_CPU

    def check(self, generation: Generation) -> int:
        """Checks a generation, and returns the most tokens that it may generate.

        :raises PromptTooLong: prompt and output do not fit the context.
        :raises PromptOverLimit: no graph was compiled for a prompt of this length.
        :raises UnsupportedField: the device would ignore a sampling parameter.
        :raises InvalidField: a grammar is too large, a stop token is outside the vocabulary, or too many output tokens
            are requested.
        """
        length, sampling = len(generation.prompt), generation.sampling
        sampling_check.check(sampling, self.sampling)
        if sampling.grammar is not None:
            grammar_limits.check(_parsed(sampling.grammar), sampling.grammar.field)
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
        """:raises InvalidField: one is outside the vocabulary. With min_tokens, it ends vLLM's engine (0.16.0)."""
        for token in tokens:
            if token >= self.vocab_size:
                raise InvalidField("stop_token_ids", f"{token} is outside 0 to {self.vocab_size - 1}")

    def check_max_tokens(self, tokens: int | None, field: str) -> None:
        """:raises InvalidField: more than the setting `max_output_tokens` allows."""
        if self.max_output is not None and (tokens or 1) > self.max_output:
            problem = f"{tokens} is more than this endpoint's limit of {self.max_output} output tokens for one request"
            raise InvalidField(field, problem)


def _parsed(grammar: Grammar) -> object:
    """The value whose strings are checked: a parsed JSON schema, or the text of the grammar.

    :raises InvalidField: it is nested too deep to be parsed.
    """
    if grammar.kind != "json":
        return grammar.text
    grammar_limits.check_depth(grammar.text, grammar.field)
    try:
        return json.loads(grammar.text)
    except ValueError:
        return grammar.text
