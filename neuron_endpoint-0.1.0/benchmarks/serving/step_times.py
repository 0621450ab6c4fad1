"""One step of the engine. `step_timing_worker.py` writes it as a line, and `steps.py` reads it."""

from __future__ import annotations

from dataclasses import astuple, dataclass

FILE = "STEP_TRACE"  # the environment's name of the file that the lines go to


@dataclass(frozen=True, slots=True)
class EngineStep:
    """Times are CLOCK_MONOTONIC ns.

    :param computed: when the model had computed.
    :param sampled: when its tokens were there.
    :param new: requests that began in it.
    :param served: requests that it computed for, the new ones among them.
    """

    began: int
    computed: int
    sampled: int
    new: int
    served: int
    tokens: int

    @classmethod
    def of(cls, line: str) -> EngineStep:
        return cls(*map(int, line.split()))

    def line(self) -> str:
        return " ".join(map(str, astuple(self))) + "\n"
