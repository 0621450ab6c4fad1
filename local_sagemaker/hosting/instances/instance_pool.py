"""The instances of one model. Dead and unhealthy ones are replaced, and busy ones are drained before they stop."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from local_sagemaker.hosting.instances.instance import Instance, InstanceState, Launch
from local_sagemaker.hosting.instances.instance_routing import PrefixAware
from local_sagemaker.hosting.instances.model_data import remove

log = logging.getLogger(__name__)

DRAIN_SECONDS = 480.0
LONGEST_PAUSE = 30.0
ENDED_WITHIN = 5.0
EXPECTED = (InstanceState.STARTING, InstanceState.HEALTHY)


class InstanceStartFailed(Exception):
    """A fleet did not come into service. The message is the FailureReason."""


class Cancelled(Exception):
    """The start was cancelled, because the endpoint is being deleted."""


class Pool:
    """The instances of one model. Their files are removed when the last one has ended.

    :param changed: the endpoint's lock. Routing holds it, so that no fleet is drained while a request is routed.
    """

    def __init__(
        self,
        launch: Launch,
        count: int,
        changed: threading.Condition,
        least_outstanding: bool,
        prefix_aware: PrefixAware | None = None,
    ) -> None:
        self.launch = launch
        self.desired = count
        self._changed = changed
        self._least_outstanding = least_outstanding
        self._prefix_aware = prefix_aware
        self._instances: list[Instance] = []
        self._draining: set[str] = set()
        self._served = False
        self._stopped = False
        self._failure: Instance | None = None
        self._died_in_a_row = 0
        self._fill()

    def healthy(self) -> list[Instance]:
        return [each for each in self._expected() if each.state is InstanceState.HEALTHY]

    def instances(self) -> list[Instance]:
        with self._changed:
            return list(self._instances)

    def pick(
        self, without: frozenset[str] = frozenset(), body: bytes = b"", identifier: str | None = None
    ) -> Instance | None:
        """Reserves an instance for one request. The caller must call ``release``.

        :param body: the request's body, for prefix-aware routing.
        """
        with self._changed:
            fitting = [each for each in self.healthy() if each.id not in without]
            if not fitting:
                return None
            if self._prefix_aware is not None:
                fitting = self._prefix_aware.among(fitting, self._prefix_aware.prefix(body, identifier))
            if self._least_outstanding:
                least = min(each.outstanding for each in fitting)
                fitting = [each for each in fitting if each.outstanding == least]
            return self.take(random.choice(fitting))

    def take(self, instance: Instance) -> Instance:
        with self._changed:
            instance.outstanding += 1
        return instance

    def release(self, instance: Instance) -> None:
        with self._changed:
            instance.outstanding -= 1
            if instance.id in self._draining:
                self._changed.notify_all()

    def wait_ready(self, cancelled: Callable[[], bool]) -> None:
        """Waits until the desired number of instances is healthy.

        :raises InstanceStartFailed: an instance has ended, or answered no ping in time.
        :raises Cancelled: the wait was cancelled.
        """
        with self._changed:
            while len(self.healthy()) < self.desired:
                if cancelled():
                    raise Cancelled
                if self._failure is not None:
                    raise InstanceStartFailed(f"{self._failure.reason}; its log is {self._failure.log}")
                self._changed.wait(0.5)
            self._served = True

    def scale(self, count: int) -> None:
        """Starts more instances, or drains and stops those that do not serve yet, then the least busy ones."""
        with self._changed:
            # An instance that dies before more are healthy fails the change, as at the start.
            self._served = count <= self.desired
            self.desired = count
            self._failure = None
            expected = sorted(
                self._expected(), key=lambda each: (each.state is InstanceState.HEALTHY, each.outstanding)
            )
            surplus = expected[: max(len(expected) - count, 0)]
            self._drain(surplus)
            self._fill()

    def drain(self) -> None:
        """Routes no new requests here. Each instance stops after its last request, or after `DRAIN_SECONDS`."""
        with self._changed:
            self._end()
            self._drain(self._instances)

    def stop(self) -> None:
        with self._changed:
            self._end()
            for instance in self._instances:
                instance.stop()

    def abandon(self) -> None:
        """Prevents further starts without taking the lock."""
        self._stopped = True

    def wait_ended(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        return all(each.wait_ended(max(deadline - time.monotonic(), 0)) for each in self.instances())

    def _end(self) -> None:
        if not self._stopped:
            self._stopped = True
            threading.Thread(target=self._remove_files, daemon=True).start()

    def _remove_files(self) -> None:
        while not self.wait_ended(ENDED_WITHIN):
            pass
        remove(self.launch.base)

    def _drain(self, instances: list[Instance]) -> None:
        for instance in list(instances):
            if instance.id not in self._draining:
                self._draining.add(instance.id)
                threading.Thread(target=self._stop_when_idle, args=(instance,), daemon=True).start()

    def _stop_when_idle(self, instance: Instance) -> None:
        with self._changed:
            self._changed.wait_for(lambda: instance.outstanding == 0, DRAIN_SECONDS)
        instance.stop()

    def _expected(self) -> list[Instance]:
        """Returns the instances that serve, or will."""
        return [each for each in self._instances if each.state in EXPECTED and each.id not in self._draining]

    def _fill(self) -> None:
        with self._changed:
            if not self._stopped:
                missing = self.desired - len(self._expected())
                self._instances += [Instance(self.launch, self._note) for _ in range(missing)]

    def _note(self, instance: Instance) -> None:
        """Handles an instance's change of state. Called from the instance's thread."""
        with self._changed:
            if instance.state is InstanceState.ENDED:
                self._instances = [each for each in self._instances if each is not instance]
            if instance.state is InstanceState.HEALTHY:
                self._died_in_a_row = 0
            lost = instance.state in (InstanceState.UNHEALTHY, InstanceState.ENDED) and bool(instance.reason)
            if lost and not self._stopped and instance.id not in self._draining:
                self._lose(instance)
            self._changed.notify_all()

    def _lose(self, instance: Instance) -> None:
        # Count it once: an unhealthy instance changes its state again when it has ended.
        self._draining.add(instance.id)
        log.warning("%s is lost: %s (log: %s)", instance.id, instance.reason, instance.log)
        if not self._served:
            self._failure = instance
            return
        self._died_in_a_row = 0 if instance.was_healthy else self._died_in_a_row + 1
        if self._died_in_a_row:
            pause = min(2.0 ** (self._died_in_a_row - 1), LONGEST_PAUSE)
            timer = threading.Timer(pause, self._fill)
            timer.daemon = True
            timer.start()
        else:
            self._fill()
