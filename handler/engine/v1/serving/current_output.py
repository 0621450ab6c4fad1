"""The outputs of vLLM's engine as its parsers for streams expect them: one choice and one token at a time.

A step has several tokens with speculative decoding, and when the event loop was busy. Most parsers of vLLM lose text if
a mark is not the only token of its step. They look for the mark in the text of the step that has its token. But with
stop strings vLLM holds back the end of the text, so tokens are kept here until their text has come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.detokenizer import BaseIncrementalDetokenizer, IncrementalDetokenizer

from handler.engine.generation.token_pieces import token_pieces

# What a serving class is working on: the index of the choice, and whether it is its last output.
CURRENT: Final[ContextVar[tuple[int, bool]]] = ContextVar("current_output", default=(0, False))


@dataclass(slots=True)
class _Late:
    """The tokens of a choice whose text has not come as a whole, with what has come of it.

    :param detokenizer: vLLM's, of this choice alone: it tells the text of each token.
    """

    detokenizer: BaseIncrementalDetokenizer
    text: str = ""
    tokens: deque[tuple[int, int, Any]] = field(default_factory=deque)

    def parts(self, choice: CompletionOutput) -> Iterator[CompletionOutput]:
        """The tokens whose text has come with this step. All of them at the end, which a stop string may cut off."""
        logprobs = choice.logprobs or [None] * len(choice.token_ids)
        for token, entry in zip(choice.token_ids, logprobs, strict=True):
            self.detokenizer.token_ids.append(token)  # the slow one decodes the last of these
            self.tokens.append((token, len(self.detokenizer.decode_next(token)), entry))
        self.text += choice.text
        finished = choice.finish_reason is not None
        while len(self.tokens) > finished and (finished or self.tokens[0][1] <= len(self.text)):
            token, size, entry = self.tokens.popleft()
            part = copy(choice)
            part.text, self.text = self.text[:size], self.text[size:]
            part.token_ids, part.logprobs = [token], choice.logprobs and [entry]
            part.finish_reason, part.stop_reason = None, None
            yield part
        if finished:
            last = copy(choice)
            last.text, last.token_ids = self.text, [token for token, _, _ in self.tokens]
            last.logprobs = choice.logprobs and [entry for _, _, entry in self.tokens]
            yield last


class SingleTokens:
    """Splits the outputs of one stream."""

    def __init__(self, tokenizer: Any, params: SamplingParams) -> None:
        self._tokenizer, self._params = tokenizer, params
        self._late: dict[int, _Late] = {}

    def of(self, output: RequestOutput) -> Iterator[RequestOutput]:
        """One output for each choice and token. Sets `CURRENT` for each."""
        for choice in output.outputs:
            for part in self._with_text(choice, output) if self._params.stop else _tokens(choice, self._tokenizer):
                CURRENT.set((part.index, part.finish_reason is not None))
                single = copy(output)
                single.outputs = [part]
                yield single

    def _with_text(self, choice: CompletionOutput, output: RequestOutput) -> Iterator[CompletionOutput]:
        late = self._late.get(choice.index)
        if late is None:
            request: Any = SimpleNamespace(
                request_id=output.request_id,
                prompt_token_ids=output.prompt_token_ids,
                prompt_embeds=None,
                sampling_params=self._params,
            )
            late = _Late(IncrementalDetokenizer.from_new_request(self._tokenizer, request))
            self._late[choice.index] = late
        return late.parts(choice)


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
