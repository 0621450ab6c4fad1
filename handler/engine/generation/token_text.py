"""Token ids back to text, a token at a time: what TGI's `details` show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TokenText:
    """Decodes for one reply; not shared between requests.

    :param tokenizer: a transformers tokenizer.
    """

    __slots__ = ("_special", "_tokenizer")

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special: frozenset[int] | None = None

    def special(self, token_id: int) -> bool:
        """It is a token of the model's own, such as the end of an answer, and no text."""
        if self._special is None:
            self._special = frozenset(self._tokenizer.all_special_ids)
        return token_id in self._special

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each token's part of the text of all of them, special tokens as they are spelled.

        A token that ends within a character has no text; the one that completes it has all of it.
        """
        if not getattr(self._tokenizer, "is_fast", False):
            return [self._tokenizer.decode([token]) for token in ids]
        from tokenizers.decoders import DecodeStream

        stream = DecodeStream(skip_special_tokens=False)
        return [stream.step(self._tokenizer.backend_tokenizer, token) or "" for token in ids]
