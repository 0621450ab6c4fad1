"""What a fleet strains, and the load at which each limit is met: what breaks first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from handler.json_value import Json
from model_packaging.capacity.fleet_size import Fleet
from model_packaging.capacity.measured import FRONT_END, LOOKS, POLL, S3_READS


@dataclass(frozen=True, slots=True)
class CapacityQuotas:
    """What the account may have; Service Quotas tells. None: not known, so not judged.

    :param instances: of this type, for endpoints. :param invocations: InvokeEndpoint calls a second.
    """

    instances: int | None = None
    invocations: float | None = None


@dataclass(frozen=True, slots=True)
class Strain:
    """:param needed, limit: in the same unit; no limit is one that nobody told.
    :param grows: with the load; else it is one instance's own.
    :param then: what happens beyond the limit, and the fix."""

    what: str
    needed: float
    limit: float | None
    unit: str
    then: str
    grows: bool = True

    @property
    def share(self) -> float:
        """Of the limit; 0 where there is none known."""
        return self.needed / self.limit if self.limit else 0.0

    def requests(self, fleet: Fleet) -> float:
        """The requests a second at which the limit is met; infinite where it does not depend on them or is unknown."""
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
    """The nearest limit first; those that nobody knows last."""
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
