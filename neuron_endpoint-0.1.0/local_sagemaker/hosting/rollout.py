"""The plan of an update: all at once, canary, linear, or rolling."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rollout:
    """The steps of an update.

    :ivar shares: the new fleet's share of the traffic after each step. The last is 1.
    :ivar wait: the baking period after each step, in seconds.
    :ivar termination_wait: how many seconds the old fleet is kept without traffic before it ends.
    :ivar rolling: the new fleet has only the instances of its share, and the old fleet the rest.
    :ivar rollback_shares: the old fleet's share after each step of a rolling update's rollback.
    :ivar alarms: if one is in state ALARM during a baking period, the update is rolled back.
    :ivar limit: the seconds after which the update is rolled back.
    """

    shares: tuple[float, ...] = (1.0,)
    wait: float = 0.0
    termination_wait: float = 0.0
    rolling: bool = False
    rollback_shares: tuple[float, ...] = (1.0,)
    alarms: tuple[str, ...] = ()
    limit: float | None = None

    @classmethod
    def of(cls, deployment_config: Document | None, instances: int) -> Rollout:
        """Returns the rollout of a DeploymentConfig.

        :param instances: the number of instances of the new fleet. Sizes in INSTANCE_COUNT are shares of it.
        """
        config = deployment_config or {}
        alarms = alarm_names(config)
        if policy := config.get("BlueGreenUpdatePolicy"):
            routing = policy["TrafficRoutingConfiguration"]
            return cls(
                _shares(routing, instances),
                routing["WaitIntervalInSeconds"],
                policy.get("TerminationWaitInSeconds", 0),
                alarms=alarms,
                limit=policy.get("MaximumExecutionTimeoutInSeconds"),
            )
        if policy := config.get("RollingUpdatePolicy"):
            return cls(
                tuple(_steps(_share(policy["MaximumBatchSize"], instances))),
                policy["WaitIntervalInSeconds"],
                rolling=True,
                rollback_shares=tuple(_steps(_share(policy.get("RollbackMaximumBatchSize"), instances))),
                alarms=alarms,
                limit=policy.get("MaximumExecutionTimeoutInSeconds"),
            )
        return cls(alarms=alarms)


def alarm_names(deployment_config: Document) -> tuple[str, ...]:
    alarms = (deployment_config.get("AutoRollbackConfiguration") or {}).get("Alarms", [])
    return tuple(alarm["AlarmName"] for alarm in alarms if alarm.get("AlarmName"))


def _shares(routing: Document, instances: int) -> tuple[float, ...]:
    if routing["Type"] == "CANARY":
        return (_share(routing.get("CanarySize"), instances), 1.0)
    if routing["Type"] == "LINEAR":
        return tuple(_steps(_share(routing.get("LinearStepSize"), instances)))
    return (1.0,)


def _share(size: Document | None, instances: int) -> float:
    if size is None:
        return 1.0
    share: float = size["Value"] / 100 if size["Type"] == "CAPACITY_PERCENT" else size["Value"] / instances
    return min(share, 1.0)


def _steps(step: float) -> Iterator[float]:
    for number in range(1, math.ceil(round(1 / step, 6)) + 1):
        yield min(number * step, 1.0)
