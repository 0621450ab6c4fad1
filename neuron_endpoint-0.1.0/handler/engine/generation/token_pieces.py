"""Splits the text of several tokens into the text of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


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
            later = (text.find(added[one], place) for one in ids[position:] if one in added)
            mark = next((found for found in later if found >= 0), len(text))
            end = min(place + len(tokenizer.decode([token])), mark)
        pieces.append((text[place:end], token))
        place = end
    return pieces
