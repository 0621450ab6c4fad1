"""The scores of a reply, which are made of vLLM's entries when somebody reads them.

262,144 entries take seconds. The event loop only passes them on: a whole reply is built in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handler.engine.generation.generation import Position, Score


class DeferredPositions(Sequence[Any]):
    """The `Position` of each entry, and None where vLLM has none. They are made when the first one is read.

    :param entries: vLLM's, by position.
    :param part: which of them.
    """

    def __init__(self, entries: Sequence[Mapping[int, Any] | None], part: slice) -> None:
        self._source: tuple[Sequence[Mapping[int, Any] | None], slice] | None = (entries, part)
        self._positions: list[Position | None] = []

    def _made(self) -> list[Position | None]:
        if self._source is not None:
            entries, part = self._source
            self._positions = [None if entry is None else _position(entry) for entry in entries[part]]
            self._source = None
        return self._positions

    def __getitem__(self, place: Any) -> Any:
        return self._made()[place]

    def __len__(self) -> int:
        return len(self._made())


def _position(entry: Mapping[int, Any]) -> Position:
    """vLLM's first entry for a position is its token (vllm/logprobs.py)."""
    return [Score(token, score.logprob, score.decoded_token or "") for token, score in entry.items()]
