"""Waits for an endpoint or a component, and reports what SageMaker and the container are doing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from model_packaging.deployment.aws import unless_missing
from model_packaging.deployment.container_log import Log, stage_of
from model_packaging.deployment.deployment_errors import DeploymentFailed, StillGoing
from model_packaging.deployment.diagnosis import diagnose

Members = dict[str, Any]
MOVING = ("Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting")
LOOKS = 6
STARTING = ("Creating", "Updating")
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PollInterval:
    """The poll interval and the time limit of a wait, in seconds.

    :param longest: the time limit of one wait. It exceeds the sum of the service's own limits.
    """

    poll: float = 10.0
    longest: float = 3 * 3600.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


class WatchedResource:
    """An endpoint or an inference component: its creation, update and deletion take minutes.

    :param call: `endpoint` or `inference_component`, as in the names of boto3's methods.
    """

    def __init__(self, sagemaker: Any, call: str, name: str) -> None:
        member = call.title().replace("_", "")
        self.label = f"{call.rpartition('_')[2]} {name}"
        self.status, self.arn = f"{member}Status", f"{member}Arn"
        self.create: Callable[..., Any] = getattr(sagemaker, f"create_{call}")
        self.describe, self.update, self.delete = (
            partial(getattr(sagemaker, f"{verb}_{call}"), **{f"{member}Name": name})
            for verb in ("describe", "update", "delete")
        )


class EndpointWatch:
    """Waits for an endpoint or a component.

    :param log: the container's log.
    :param tell: called with a line at each change.
    """

    def __init__(self, log: Log, tell: Tell, pace: PollInterval) -> None:
        self._log, self._tell, self._pace = log, tell, pace
        self._lines: list[Any] = []
        self._last = ""

    def begin(self, moment: float) -> None:
        """Ignores log lines before `moment` (seconds since the epoch): they belong to an earlier start."""
        self._lines.clear()
        self._log.since(int(moment * 1000))

    def settled(self, resource: WatchedResource) -> Members | None:
        """Waits until the status is final. Returns the description, or None if the resource is deleted.

        :raises StillGoing: it took longer than the time limit.
        """
        began = self._pace.clock()
        while True:
            about = unless_missing(resource.describe)
            now = "gone" if about is None else about[resource.status]
            self._follow(resource.label, now)
            if about is None or now not in MOVING:
                return about
            waited = self._pace.clock() - began
            if waited > self._pace.longest:
                raise StillGoing(resource.label, now, waited)
            self._pace.sleep(self._pace.poll)

    def gone(self, resource: WatchedResource) -> None:
        """Waits until the resource is deleted. Directly after the call it may be described as it was before.

        :raises DeploymentFailed: it is not deleted.
        """
        about = self.settled(resource)
        for _ in range(LOOKS):
            if about is None:
                return
            self._pace.sleep(self._pace.poll)
            about = self.settled(resource)
        raise self.failed(f"the deletion of {resource.label}", str((about or {}).get("FailureReason", "")))

    def in_service(self, resource: WatchedResource) -> Members:
        """Waits until the resource is in service.

        :raises DeploymentFailed: it is not. The container's log is used for the explanation.
        """
        about = self.settled(resource)
        if about is not None and about[resource.status] == "InService":
            return about
        raise self.failed(resource.label, str((about or {}).get("FailureReason", "")))

    def failed(self, what: str, reason: str) -> DeploymentFailed:
        self._lines += self._log.new()
        message = f"{what} failed: {reason or 'SageMaker gave no reason'}"
        texts = [line.text for line in self._lines]
        return DeploymentFailed(message, diagnose(reason, texts), texts)

    def _follow(self, what: str, status: str) -> None:
        stage = ""
        if status in STARTING:
            self._lines = [*self._lines, *self._log.new()][-1000:]
            stage = stage_of(self._lines)
        text = f"{what}: {status}" + (f"; the container: {stage}" if stage else "")
        if text != self._last:
            self._tell(text)
            self._last = text
