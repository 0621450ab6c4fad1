"""Cuts a streamed body into payload parts.

SageMaker does not define where a part ends: it may be inside an SSE event, a JSON string or a UTF-8 character. A client
that parses part by part works on a quiet machine and fails in production. So a gateway can cut at such places on
purpose. No cut delays bytes: everything that has arrived is sent at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Cut = Callable[[bytes], Iterator[bytes]]


def as_they_arrive(arrived: bytes) -> Iterator[bytes]:
    """Sends one part for each chunk of the container's reply. Clients that expect one event per part need this."""
    yield arrived


@dataclass(frozen=True, slots=True)
class CutEvery:
    """Cuts into parts of at most ``size`` bytes."""

    size: int

    def __call__(self, arrived: bytes) -> Iterator[bytes]:
        for start in range(0, len(arrived), self.size):
            yield arrived[start : start + self.size]


@dataclass(frozen=True, slots=True)
class CutAtRandom:
    """Cuts into parts of 1 to ``longest`` bytes."""

    longest: int = 48
    random: random.Random = field(default_factory=random.Random)

    def __call__(self, arrived: bytes) -> Iterator[bytes]:
        start = 0
        while start < len(arrived):
            end = start + self.random.randint(1, self.longest)
            yield arrived[start:end]
            start = end


def parse_cut(text: str | None) -> Cut:
    """Parses ``--cut-parts``: nothing, a number of bytes, or ``random``."""
    if text is None:
        return as_they_arrive
    if text == "random":
        return CutAtRandom()
    if text.isascii() and text.isdigit() and int(text) > 0:
        return CutEvery(int(text))
    raise ValueError(f"{text!r} is neither a number of bytes above 0 nor 'random'")
