"""What the stub of an engine says, and when. Knows nothing of vLLM."""

from __future__ import annotations

from typing import Any

WORDS = 64


def plain_words(tokenizer: Any) -> list[int]:
    """The first tokens, by id, that are a space and a few ASCII letters: text by themselves, in any order."""
    found = []
    for token in range(len(tokenizer)):
        text = tokenizer.decode([token])
        if text.startswith(" ") and text[1:].isascii() and text[1:].isalpha() and 3 <= len(text) <= 6:
            found.append(token)
            if len(found) == WORDS:
                break
    return found


class StubPace:
    """When the next step may end. A step counts from the end of the one before, so that the scheduler's own time is
    part of it; after a pause, or when it cannot keep up, it counts from now: nothing is made up for."""

    def __init__(self) -> None:
        self._due = 0.0

    def wait_s(self, now: float, steps_per_s: float | None) -> float:
        """Seconds to sleep at monotonic `now`; None: as fast as can be."""
        if steps_per_s is None:
            self._due = now
            return 0.0
        period = 1 / steps_per_s
        self._due = self._due + period if now < self._due + 2 * period else now + period
        return max(0.0, self._due - now)


class StubProgress:
    """One request: tokens its prompt still needs, and tokens it has made."""

    __slots__ = ("made", "missing", "rate")

    def __init__(self, missing: int, rate: float | None) -> None:
        self.missing = missing
        self.made = 0
        self.rate = rate
