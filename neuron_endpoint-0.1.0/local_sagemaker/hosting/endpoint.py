"""A live endpoint: its creation, updates with rollback, scaling and deletion."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Protocol

from local_sagemaker.hosting.alarms import Alarms
from local_sagemaker.hosting.component import Component
from local_sagemaker.hosting.deployment import Deployment, Variant
from local_sagemaker.hosting.fleets import Fleets
from local_sagemaker.hosting.instances.host_settings import HostTiming
from local_sagemaker.hosting.instances.instance import Instance
from local_sagemaker.hosting.instances.instance_pool import Cancelled, InstanceStartFailed, Pool
from local_sagemaker.hosting.planned_faults import Chaos
from local_sagemaker.hosting.rollout import Document, Rollout
from local_sagemaker.hosting.sticky_sessions import StickySessions
from local_sagemaker.hosting.update import Update

log = logging.getLogger(__name__)


class Report(Protocol):
    """Records an endpoint's status. ``plan`` is the configuration that it serves, once it serves it."""

    def __call__(self, status: str, reason: str | None = None, plan: Document | None = None) -> None: ...


class LiveEndpoint:
    """A live endpoint. Its changes run one after the other, each in its own thread; ``changed`` guards its state.

    :ivar current: the deployment that serves.
    :ivar pending: the deployment that is being started to replace it.
    :ivar ended: the endpoint is being deleted, or the service ends.
    :ivar starting: copies of inference components that do not serve yet.
    """

    def __init__(self, name: str, fleets: Fleets, timing: HostTiming, alarms: Alarms, report: Report) -> None:
        self.name = name
        self.changed = threading.Condition(threading.RLock())
        self.current: Deployment | None = None
        self.components: dict[str, Component] = {}
        self.sessions = StickySessions()
        self.chaos = Chaos()
        self.starting: list[Pool] = []
        self.pending: Deployment | None = None
        self._share = 0.0
        self._fleets = fleets
        self._alarms = alarms
        self._timing = timing
        self._report = report
        self.ended = threading.Event()
        self._turn = threading.Lock()

    def create(self, plan: Document) -> None:
        self._in_turn(lambda: self._create(plan))

    def update(self, plan: Document, deployment_config: Document | None) -> None:
        self._in_turn(lambda: self._update(plan, deployment_config))

    def scale(self, changes: list[Document]) -> None:
        self._in_turn(lambda: self._scale(changes))

    def delete(self, then: Callable[[], None]) -> None:
        self.ended.set()
        with self.changed:
            self.changed.notify_all()
        self._in_turn(lambda: self._delete(then))

    def shut_down(self) -> None:
        """Stops the processes because the service ends. The endpoint's recorded state stays unchanged."""
        self.ended.set()
        with self.changed:
            pools = self.pools()
            for pool in pools:
                pool.stop()
        deadline = time.monotonic() + self._timing.kill_after + 5
        for pool in pools:
            pool.wait_ended(max(deadline - time.monotonic(), 0))

    def deployments(self) -> list[Deployment]:
        return [each for each in (self.current, self.pending) if each is not None]

    def pools(self) -> list[Pool]:
        with self.changed:
            variants = [variant for each in self.deployments() for variant in each.variants.values()]
            pools = [variant.pool for variant in variants if variant.pool]
            copies = [component.pool for component in self.components.values() if component.pool]
            return list(dict.fromkeys([*pools, *copies, *self.starting]))

    def instances(self) -> list[Instance]:
        return [instance for pool in self.pools() for instance in pool.instances()]

    def choose(self, target: str | None) -> Variant | None:
        """Returns the variant for a request: the requested one, or one by weight. Call it with ``changed`` held."""
        if self.current is None:
            return None
        moved = self.pending is not None and random.random() < self._share
        deployment = self.pending if self.pending is not None and moved else self.current
        if target is not None:
            return deployment.variants.get(target)
        weighed = [variant for variant in deployment.variants.values() if variant.weight > 0]
        able = [variant for variant in weighed if variant.pool and variant.pool.healthy()] or weighed
        return random.choices(able, [variant.weight for variant in able])[0]

    def _in_turn(self, change: Callable[[], None]) -> None:
        def run() -> None:
            with self._turn:
                try:
                    change()
                except Exception:
                    log.exception("a change of endpoint %s failed", self.name)
                    self._report("Failed", "The service failed. Its log has the reason.")

        threading.Thread(target=run, daemon=True, name=self.name).start()

    def _create(self, plan: Document) -> None:
        try:
            deployment = self._start(plan, self.ended.is_set)
        except InstanceStartFailed as error:
            with self.changed:
                self.pending = None
            self._report("Failed", str(error))
        except Cancelled:
            pass
        else:
            with self.changed:
                self.current, self.pending = deployment, None
                self.changed.notify_all()
            self._report("InService", plan=plan)

    def _start(self, plan: Document, cancelled: Callable[[], bool], share: float = 1.0) -> Deployment:
        deployment = Deployment(plan)
        with self.changed:
            self.pending, self._share = deployment, 0.0
        self._fleets.start(self.name, deployment, self.changed, cancelled, share)
        return deployment

    def _update(self, plan: Document, deployment_config: Document | None) -> None:
        if self.ended.is_set():
            return
        before = self.current
        rollout = Rollout.of(deployment_config, sum(each["Count"] for each in plan["Variants"]))
        update = Update(rollout, self._timing, self._alarms, self.ended)
        try:
            deployment = self._start(plan, update.cancelled, rollout.shares[0] if rollout.rolling else 1.0)
            self._shift(before, deployment, update)
        except InstanceStartFailed as error:
            self._report("RollingBack", str(error))
            self._roll_back(before, rollout, str(error))
        except BaseException as error:
            self._abandon()
            if not isinstance(error, Cancelled):
                raise
        else:
            with self.changed:
                self.current, self.pending = deployment, None
            self._report("InService", plan=plan)
            if before is not None:
                before.drain()

    def _shift(self, before: Deployment | None, deployment: Deployment, update: Update) -> None:
        """Shifts the traffic to the new fleet, step by step.

        :raises InstanceStartFailed: an instance of the new fleet died, an alarm is in state ALARM, or it takes too
            long.
        """
        rollout = update.rollout
        for share in rollout.shares:
            if rollout.rolling:
                deployment.scale_to(share)
                deployment.wait_ready(update.cancelled)
            with self.changed:
                self._share = share
            deployment.stage = "Baking"
            update.bake(deployment, rollout.wait)
            if rollout.rolling and before is not None and share < 1:
                before.scale_to(1 - share)
        update.bake(deployment, rollout.termination_wait)

    def _roll_back(self, before: Deployment | None, rollout: Rollout, reason: str) -> None:
        """Rolls an update back. A rolling update stopped old instances: they start again before traffic returns."""
        if rollout.rolling and before is not None:
            try:
                for share in rollout.rollback_shares:
                    before.scale_to(share, at_least=True)
                    before.wait_ready(self.ended.is_set)
                    with self.changed:
                        self._share = min(self._share, 1 - share)
            except InstanceStartFailed as error:
                self._report("UpdateRollbackFailed", f"{reason} The rollback failed, too: {error}")
                return
            except Cancelled:
                pass
        self._abandon()
        self._report("InService", reason)

    def _abandon(self) -> None:
        with self.changed:
            failed, self.pending, self._share = self.pending, None, 0.0
        if failed is not None:
            failed.drain()

    def _scale(self, changes: list[Document]) -> None:
        if self.current is None or self.ended.is_set():
            return
        plan = self.current.plan
        reason = None
        for change in changes:
            variant = self.current.variants[change["VariantName"]]
            with self.changed:
                variant.weight = change.get("DesiredWeight", variant.weight)
                count = change.get("DesiredInstanceCount", variant.count)
            before, variant.count = variant.count, count
            if variant.pool is not None and count != before:
                variant.pool.scale(count)
                try:
                    variant.pool.wait_ready(self.ended.is_set)
                except InstanceStartFailed as error:
                    reason = f"The instances of variant {variant.name} could not be scaled to {count}. ({error})"
                    variant.count = before
                    variant.pool.scale(before)
                except Cancelled:
                    return
            planned = next(each for each in plan["Variants"] if each["VariantName"] == variant.name)
            planned["Weight"], planned["Count"] = variant.weight, variant.count
        self._report("InService", reason, plan=plan)

    def _delete(self, then: Callable[[], None]) -> None:
        with self.changed:
            ending = self.deployments()
            components = list(self.components.values())
            self.current = self.pending = None
            self.components.clear()
            starting = list(self.starting)
        for component in components:
            component.stop()
        for pool in starting:
            pool.stop()
        for deployment in ending:
            deployment.stop()
        for deployment in ending:
            deployment.wait_ended(self._timing.kill_after + 5)
        then()
