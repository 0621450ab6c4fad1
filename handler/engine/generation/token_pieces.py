"""The text of each token: a part of a text, or the token decoded for TGI's `details`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

# As many tokens of a prompt as TGI decodes in front of the reply. vLLM decodes 4 or more.
BEFORE: Final = 5


def token_pieces(tokenizer: Any, text: str, ids: Sequence[int]) -> list[tuple[str, int]]:
    """Pairs of text and token, whose texts together are `text`.

    The tokens that a tokenizer has for marks (`<tool_call>`) get exactly their mark, or nothing where it was left out
    of the text. Between marks the lengths are those of each token decoded alone; a character of several tokens may come
    with the wrong one of them. Without a token there is one pair, whose token is -1.
    """
    if len(ids) < 2:
        return [(text, ids[0] if ids else -1)]
    added = {token: mark for mark, token in tokenizer.get_added_vocab().items()}
    pieces, place = [], 0
    for position, token in enumerate(ids):
        if position == len(ids) - 1:
            end = len(text)
        elif token in added:
            end = place + len(added[token]) if text.startswith(added[token], place) else place
        else:
            later = (text.find(added[token], place) for token in ids[position:] if token in added)
            mark = next((mark_place for mark_place in later if mark_place >= 0), len(text))
            end = min(place + len(tokenizer.decode([token])), mark)
        pieces.append((text[place:end], token))
        place = end
    return pieces


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

    def pieces(self, ids: Sequence[int], before: Sequence[int] = ()) -> list[str]:
        """The part of the text that belongs to each token. Special tokens are included.

        A token that ends within a character has no text. The token that completes the character has all of it.

        :param before: the tokens in front of them. The decoder of some models, such as Llama 2, takes the blank off the
            first token of a text.
        """
        if not getattr(self._tokenizer, "is_fast", False):
            return [self._tokenizer.decode([token]) for token in ids]
        from tokenizers.decoders import DecodeStream

        backend, stream = self._tokenizer.backend_tokenizer, DecodeStream(skip_special_tokens=False)

        def piece(token: int) -> str:
            nonlocal stream
            try:
                return stream.step(backend, token) or ""
            except Exception:  # of bytes that are no characters. vLLM begins anew, too
                stream = DecodeStream(skip_special_tokens=False)
                return stream.step(backend, token) or ""

        for token in before[-BEFORE:]:
            if not self.special(token):  # vLLM's text begins without them
                piece(token)
        return [piece(token) for token in ids]
