"""A running update: its time limit, and the checks during its baking periods."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from local_sagemaker.hosting.alarms import Alarms
from local_sagemaker.hosting.instances.host_settings import HostTiming
from local_sagemaker.hosting.instances.instance_pool import Cancelled, InstanceStartFailed
from local_sagemaker.hosting.rollout import Rollout

LOOK_EVERY = 0.1


class Watched(Protocol):
    def lost(self) -> int:
        """Returns how many instances have died since it started."""


class Update:
    """A running update.

    :param ended: set when the endpoint is being deleted.
    """

    def __init__(self, rollout: Rollout, timing: HostTiming, alarms: Alarms, ended: threading.Event) -> None:
        self.rollout = rollout
        self._timing = timing
        self._alarms = alarms
        self._ended = ended
        self._until = None if rollout.limit is None else time.monotonic() + timing.scaled(rollout.limit)

    def cancelled(self) -> bool:
        """Returns whether the endpoint is being deleted.

        :raises InstanceStartFailed: the update takes too long.
        """
        if self._until is not None and time.monotonic() > self._until:
            raise InstanceStartFailed(
                f"The deployment took longer than MaximumExecutionTimeoutInSeconds ({self.rollout.limit:g})."
            )
        return self._ended.is_set()

    def bake(self, deployment: Watched, seconds: float) -> None:
        """Checks the new fleet and the alarms for this time, at least once.

        :raises InstanceStartFailed: an instance died, an alarm is in state ALARM, or the update takes too long.
        :raises Cancelled: the endpoint is being deleted.
        """
        until = time.monotonic() + self._timing.scaled(seconds)
        while True:
            if deployment.lost():
                raise InstanceStartFailed(
                    "An instance of the new fleet failed its health checks while traffic moved to it."
                )
            if self.cancelled():
                raise Cancelled
            if self.rollout.alarms and (ringing := self._alarms.ringing(self.rollout.alarms)):
                raise InstanceStartFailed(f"The CloudWatch alarm {', '.join(ringing)} is in the state ALARM.")
            if (left := until - time.monotonic()) <= 0:
                return
            self._ended.wait(min(left, LOOK_EVERY))
