"""Says how an engine's process ended: the kernel sends SIGKILL to a process when memory runs out."""

from __future__ import annotations

import signal
from collections.abc import Sequence


def from_outside(statuses: Sequence[int], oom_kills: int) -> bool:
    """Whether somebody has killed it. No core does that to itself, but for its memory. Arguments as `described`."""
    return -signal.SIGKILL in statuses and oom_kills <= 0


def described(statuses: Sequence[int], oom_kills: int) -> str:
    """How it ended, for "the engine's process ...".

    :param statuses: of its processes, as in `multiprocessing`: a negative one is a signal.
    :param oom_kills: how many processes the kernel has ended for memory since the engine started.
    """
    number = next((-status for status in statuses if status < 0), None)
    if oom_kills > 0 and number in (None, signal.SIGKILL):
        return "was ended by the kernel, because memory ran out"
    if number is None:
        return "ended"
    likely = ", often because memory ran out" if number == signal.SIGKILL else ""
    return f"was ended by {signal.Signals(number).name}{likely}"
