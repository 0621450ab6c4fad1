"""Waits for conditions that no event tells of, within a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

WITHIN = 60.0


def eventually(condition: Callable[[], object], within: float = WITHIN) -> None:
    """Returns once the condition holds.

    :raises AssertionError: it does not within `within` seconds.
    """
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"not within {within:g} s"
        time.sleep(0.002)
