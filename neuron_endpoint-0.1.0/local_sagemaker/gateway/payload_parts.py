"""Cuts a streamed body into payload parts.

SageMaker does not define where a part ends: it may be inside an SSE event, a JSON string or a UTF-8 character. A client
that parses part by part works on a quiet machine and fails in production. So a gateway can cut at such places on
purpose. No cut delays bytes: everything that has arrived is sent at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

Cut = Callable[[bytes], Iterator[bytes]]
LONGEST = 48


def as_they_arrive(arrived: bytes) -> Iterator[bytes]:
    """Sends one part for each chunk of the container's reply. Clients that expect one event per part need this."""
    yield arrived


def cut_every(size: int, arrived: bytes) -> Iterator[bytes]:
    """Cuts into parts of at most ``size`` bytes."""
    for start in range(0, len(arrived), size):
        yield arrived[start : start + size]


def cut_at_random(arrived: bytes) -> Iterator[bytes]:
    """Cuts into parts of 1 to `LONGEST` bytes."""
    start = 0
    while start < len(arrived):
        end = start + random.randint(1, LONGEST)
        yield arrived[start:end]
        start = end


def parse_cut(text: str | None) -> Cut:
    """Parses ``--cut-parts``: nothing, a number of bytes, or ``random``."""
    if text is None:
        return as_they_arrive
    if text == "random":
        return cut_at_random
    if text.isascii() and text.isdigit() and int(text) > 0:
        return partial(cut_every, int(text))
    raise ValueError(f"{text!r} is neither a number of bytes above 0 nor 'random'")
