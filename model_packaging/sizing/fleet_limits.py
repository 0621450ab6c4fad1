"""Computes how much of each limit a fleet uses, and at which load each is reached. It calls no AWS service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

from handler.artifacts.lease.acquisition import AcquisitionOptions
from handler.json_value import Json
from model_packaging.sizing.fleet import FRONT_END, Fleet

# Requests a second for each prefix of a bucket (Amazon S3 user guide, "Best practices design patterns").
S3_READS: Final = 5500
# S3 requests of an instance that waits for the compile of another one, without polls and files: 4 for manifests, 1 for
# failures. Counted in the simulation of a fleet's start, `make bench-fleet`.
LOOKS: Final = 5
POLL: Final = AcquisitionOptions().poll


@dataclass(frozen=True, slots=True)
class LimitUse:
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
            "reached_at_requests_per_second": None if reached == inf else round(reached, 1),
            "then": self.then,
        }


def limit_uses(
    fleet: Fleet, instance_quota: int | None = None, invocation_quota: float | None = None
) -> list[LimitUse]:
    """Returns all limits, the most used one first, unknown ones last.

    :param instance_quota: instances of this type for endpoints, as Service Quotas shows it; None: not known.
    :param invocation_quota: InvokeEndpoint calls per second, the same.
    """
    uses = _limit_uses(fleet, instance_quota, invocation_quota)
    return sorted(uses, key=lambda use: (use.limit is None, -use.share))


def _limit_uses(fleet: Fleet, instance_quota: int | None, invocation_quota: float | None) -> Iterator[LimitUse]:
    yield LimitUse(
        "instances of the account",
        fleet.instances,
        instance_quota,
        "instances",
        "CreateEndpoint fails with ResourceLimitExceeded: ask Service Quotas, take several regions",
    )
    yield LimitUse(
        "InvokeEndpoint",
        fleet.demand.requests,
        invocation_quota,
        "calls/s",
        "calls are throttled: ask Service Quotas, take several endpoints and accounts",
    )
    yield LimitUse(
        "S3 reads while all instances start at once",
        fleet.read_rate,
        S3_READS,
        "reads/s of one prefix",
        "503 Slow Down, tried again: the start takes longer; start in waves, or keep a copy under a second prefix",
    )
    yield LimitUse(
        "polls of the lease while one instance compiles",
        (fleet.instances - 1) / POLL,
        S3_READS,
        "reads/s of one prefix",
        "503 Slow Down, tried again: harmless; compile ahead (`neuron-endpoint compile`)",
    )
    yield LimitUse(
        "looks into the store, all within a minute",
        fleet.instances * LOOKS / 60,
        S3_READS,
        "reads/s of one prefix",
        "503 Slow Down, tried again",
    )
    yield LimitUse(
        "CPU of one instance's front end",
        fleet.front_end,
        1.0,
        "cores",
        f"tokens come later; one process serves {1000 / FRONT_END:,.0f} tokens/s at most",
        grows=False,
    )
