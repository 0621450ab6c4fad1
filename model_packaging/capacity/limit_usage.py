"""Computes how much of each limit a fleet uses, and the load at which each limit is reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from handler.json_value import Json
from model_packaging.capacity.fleet_size import Fleet
from model_packaging.capacity.measured import FRONT_END, LOOKS, POLL, S3_READS


@dataclass(frozen=True, slots=True)
class CapacityQuotas:
    """The account's quotas, as Service Quotas shows them. None: not known.

    :param instances: instances of this type for endpoints.
    :param invocations: InvokeEndpoint calls per second.
    """

    instances: int | None = None
    invocations: float | None = None


@dataclass(frozen=True, slots=True)
class Strain:
    """The use of one limit.

    :param needed, limit: in the same unit. A limit of None is not known.
    :param then: what happens beyond the limit, and the fix.
    :param grows: whether the need grows with the load. Otherwise it is that of one instance.
    """

    what: str
    needed: float
    limit: float | None
    unit: str
    then: str
    grows: bool = True

    @property
    def share(self) -> float:
        """The used share of the limit; 0 if the limit is not known."""
        return self.needed / self.limit if self.limit else 0.0

    def requests(self, fleet: Fleet) -> float:
        """Requests per second at which the limit is reached. Infinite if it is unknown or the need does not grow."""
        return fleet.demand.requests / self.share if self.share and self.grows else inf

    def document(self, fleet: Fleet) -> dict[str, Json]:
        reached = self.requests(fleet)
        return {
            "what": self.what,
            "needed": round(self.needed, 2),
            "limit": self.limit,
            "unit": self.unit,
            "share": round(self.share, 4),
            "met_at_requests_per_second": None if reached == inf else round(reached, 1),
            "then": self.then,
        }


def strains(fleet: Fleet, quotas: CapacityQuotas = CapacityQuotas()) -> list[Strain]:
    """Returns all limits, the most used one first, unknown ones last."""
    return sorted(_strains(fleet, quotas), key=lambda strain: (strain.limit is None, -strain.share))


def _strains(fleet: Fleet, quotas: CapacityQuotas) -> Iterator[Strain]:
    waiting = fleet.instances - 1
    yield Strain(
        "instances of the account",
        fleet.instances,
        quotas.instances,
        "instances",
        "CreateEndpoint fails with ResourceLimitExceeded: ask Service Quotas, take several regions",
    )
    yield Strain(
        "InvokeEndpoint",
        fleet.demand.requests,
        quotas.invocations,
        "calls/s",
        "calls are throttled: ask Service Quotas, take several endpoints and accounts",
    )
    yield Strain(
        "S3 reads while all instances start at once",
        fleet.read_rate,
        S3_READS,
        "reads/s of one prefix",
        "503 Slow Down, tried again: the start takes longer; start in waves, or keep a copy under a second prefix",
    )
    yield Strain(
        "polls of the lease while one instance compiles",
        waiting / POLL,
        S3_READS,
        "reads/s of one prefix",
        "503 Slow Down, tried again: harmless; compile ahead (`neuron-endpoint compile`)",
    )
    yield Strain(
        "looks into the store, all within a minute",
        fleet.instances * LOOKS / 60,
        S3_READS,
        "reads/s of one prefix",
        "503 Slow Down, tried again",
    )
    yield Strain(
        "CPU of one instance's front end",
        fleet.front_end,
        1.0,
        "cores",
        f"tokens come later; one process serves {1000 / FRONT_END:,.0f} tokens/s at most",
        grows=False,
    )
