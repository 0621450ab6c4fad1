"""Decodes token ids to text, one token at a time, for TGI's `details`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TokenText:
    """Decodes the tokens of one reply. Not shared between requests.

    :param tokenizer: a transformers tokenizer.
    """

    __slots__ = ("_special", "_tokenizer")

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special: frozenset[int] | None = None

    def special(self, token_id: int) -> bool:
        """Whether a token is a special one, such as the end of an answer."""
        if self._special is None:
            self._special = frozenset(self._tokenizer.all_special_ids)
        return token_id in self._special

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The part of the text that belongs to each token. Special tokens are included.

        A token that ends within a character has no text. The token that completes the character has all of it.
        """
        if not getattr(self._tokenizer, "is_fast", False):
            return [self._tokenizer.decode([token]) for token in ids]
        from tokenizers.decoders import DecodeStream

        stream = DecodeStream(skip_special_tokens=False)
        return [stream.step(self._tokenizer.backend_tokenizer, token) or "" for token in ids]
