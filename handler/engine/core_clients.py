"""The places at one engine core, one for each process that speaks to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# For front ends that take the place of some that ended. A seat is used once: the core greets each address once.
SPARE_SEATS: Final = 8


@dataclass(frozen=True, slots=True)
class CoreClients:
    """:param inputs: where the core takes requests from, a ZeroMQ address for each seat.
    :param outputs: where it sends what it makes.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, slots=True)
class CoreClient:
    """One of them, for one process and for its life.

    :param pids: the core's processes, the core first.
    """

    seats: CoreClients
    index: int
    pids: tuple[int, ...]
