"""The outputs of vLLM's engine as its parsers for streams expect them: one choice and one token at a time.

A step has several tokens with speculative decoding, and when the event loop was busy. Most parsers of vLLM 0.16.0 lose
text if a mark is not the only token of its step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from copy import copy
from typing import Any, Final

from vllm.outputs import CompletionOutput, RequestOutput

from handler.engine.generation.token_pieces import token_pieces

# What a serving class is working on: the index of the choice, and whether it is its last output.
CURRENT: Final[ContextVar[tuple[int, bool]]] = ContextVar("current_output", default=(0, False))


def one_by_one(output: RequestOutput, tokenizer: Any) -> Iterator[RequestOutput]:
    """The outputs of a stream's step: one for each choice and token. Sets `CURRENT` for each."""
    for choice in output.outputs:
        for part in _tokens(choice, tokenizer):
            CURRENT.set((part.index, part.finish_reason is not None))
            single = copy(output)
            single.outputs = [part]
            yield single


def _tokens(choice: CompletionOutput, tokenizer: Any) -> Iterator[CompletionOutput]:
    pieces = token_pieces(tokenizer, choice.text, choice.token_ids)
    for place, (text, token) in enumerate(pieces[:-1]):
        part = copy(choice)
        part.text, part.token_ids, part.finish_reason, part.stop_reason = text, [token], None, None
        part.logprobs = choice.logprobs and choice.logprobs[place : place + 1]
        yield part
    last = copy(choice)
    last.text, last.token_ids = pieces[-1][0], choice.token_ids[len(pieces) - 1 :]
    last.logprobs = choice.logprobs and choice.logprobs[len(pieces) - 1 :]
    yield last
