"""Makes vLLM's log probabilities cheap for the event loop. Seen on vLLM 0.16.0, 0.24.0 and 0.29.0.

vLLM decodes each token of each position by itself, in 10 us, when the core's message arrives (v1/engine/logprobs.py).
A prompt of 1,000 tokens with the 20 likeliest ones of each would hold the loop for 0.3 s. Here the text of a token is
decoded once, and the entries of a long prompt are made when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Final

from vllm.v1.engine import logprobs
from vllm.v1.engine.logprobs import LogprobsProcessor

# Entries of a prompt that are made at once, in about 2 us each.
AT_ONCE: Final = 2048
_update = LogprobsProcessor._update_prompt_logprobs
_decode = logprobs.convert_ids_list_to_tokens


def _texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Replaces `convert_ids_list_to_tokens`. A tokenizer keeps the texts of its tokens."""
    texts: dict[int, str] = vars(tokenizer).setdefault("_token_texts", {})
    unknown = [token for token in ids if token not in texts]
    if unknown:
        texts.update(zip(unknown, _decode(tokenizer, unknown), strict=True))
    return [texts[token] for token in ids]


class DeferredEntries(list[Any]):
    """The log probabilities of a prompt. They are made when the first one is read."""

    def __init__(self, processor: Any, tensors: Any) -> None:
        super().__init__()
        self._source: tuple[Any, Any] | None = (copy(processor), tensors)

    def _make(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            processor, tensors = source
            _update(processor, tensors)
            super().extend(processor.prompt_logprobs)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        self._make()
        return super().__iter__()

    def __getitem__(self, place: Any) -> Any:
        self._make()
        return super().__getitem__(place)

    def __len__(self) -> int:
        self._make()
        return super().__len__()

    def append(self, entry: Any) -> None:
        self._make()
        super().append(entry)


def _deferred(processor: Any, tensors: Any) -> None:
    """Replaces `LogprobsProcessor._update_prompt_logprobs`."""
    entries = tensors[0].numel()
    if entries <= AT_ONCE or isinstance(processor.prompt_logprobs, DeferredEntries):
        _update(processor, tensors)
    else:
        processor.prompt_logprobs = DeferredEntries(processor, tensors)


def install() -> None:
    """Changes vLLM in this process."""
    logprobs.convert_ids_list_to_tokens = _texts
    LogprobsProcessor._update_prompt_logprobs = _deferred
