"""The output and the timing of the stub engine. Does not depend on vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WORDS = 64


def plain_words(tokenizer: Any) -> list[int]:
    """Returns the first tokens, by id, that are a space and a few ASCII letters. In any order they are text."""
    found = []
    for token in range(len(tokenizer)):
        text = tokenizer.decode([token])
        if text.startswith(" ") and text[1:].isascii() and text[1:].isalpha() and 3 <= len(text) <= 6:
            found.append(token)
            if len(found) == WORDS:
                break
    return found


class StubPace:
    """Computes when the next step may end.

    A step is timed from the end of the one before, so that it includes the scheduler's own time. After a pause, or if
    the engine cannot keep up, it is timed from now: lost time is not caught up.
    """

    def __init__(self) -> None:
        self._due = 0.0

    def wait_s(self, now: float, steps_per_s: float | None) -> float:
        """Returns the seconds to sleep at monotonic `now`. A rate of None means no delay."""
        if steps_per_s is None:
            self._due = now
            return 0.0
        period = 1 / steps_per_s
        self._due = self._due + period if now < self._due + 2 * period else now + period
        return max(0.0, self._due - now)


@dataclass(slots=True)
class StubProgress:
    """One request.

    :ivar missing: the tokens of its prompt that were not computed yet.
    :ivar rate: its steps per second. None means no delay.
    :ivar made: the tokens that were generated.
    """

    missing: int
    rate: float | None
    made: int = 0
