"""How traffic moves from the old fleet to the new one: all at once, a canary first, or in equal steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rollout:
    """:ivar shares: of the traffic that the new fleet has, after each step; the last is 1.
    :ivar wait: seconds that each step is watched for.
    :ivar termination_wait: seconds that the old fleet is kept, without traffic, before it ends.
    """

    shares: tuple[float, ...] = (1.0,)
    wait: float = 0.0
    termination_wait: float = 0.0

    @classmethod
    def of(cls, deployment_config: Document | None, instances: int) -> Rollout:
        """:param instances: of the new fleet; sizes in INSTANCE_COUNT are a part of it."""
        config = deployment_config or {}
        if policy := config.get("BlueGreenUpdatePolicy"):
            routing = policy["TrafficRoutingConfiguration"]
            kind = routing["Type"]
            shares: tuple[float, ...]
            if kind == "CANARY":
                shares = (_share(routing.get("CanarySize"), instances), 1.0)
            elif kind == "LINEAR":
                shares = tuple(_steps(_share(routing.get("LinearStepSize"), instances)))
            else:
                shares = (1.0,)
            return cls(shares, routing["WaitIntervalInSeconds"], policy.get("TerminationWaitInSeconds", 0))
        if policy := config.get("RollingUpdatePolicy"):
            shares = tuple(_steps(_share(policy["MaximumBatchSize"], instances)))
            return cls(shares, policy["WaitIntervalInSeconds"])
        return cls()


def _share(size: Document | None, instances: int) -> float:
    if size is None:
        return 1.0
    share: float = size["Value"] / 100 if size["Type"] == "CAPACITY_PERCENT" else size["Value"] / instances
    return min(share, 1.0)


def _steps(step: float) -> Iterator[float]:
    for number in range(1, math.ceil(round(1 / step, 6)) + 1):
        yield min(number * step, 1.0)
