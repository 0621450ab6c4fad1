"""The clients of one engine core: one for each process that sends it requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Addresses for front ends that replace ended ones. The core accepts one connection at each address, so an address is
# used once.
SPARE_CLIENTS: Final = 8


@dataclass(frozen=True, slots=True)
class CoreAddresses:
    """The ZeroMQ addresses through which clients reach one engine core. A client's index selects its pair.

    :param inputs: for each client, the address from which the core reads requests.
    :param outputs: for each client, the address to which the core sends outputs.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, slots=True)
class CoreClient:
    """One client of an engine core. A process keeps its client as long as it lives.

    :param addresses: those of all clients.
    :param index: this client's.
    :param pids: the core's processes, the core first.
    """

    addresses: CoreAddresses
    index: int
    pids: tuple[int, ...]
