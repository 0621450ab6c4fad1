"""An endpoint's life: created, updated blue/green or rolled back, scaled, deleted."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from local_sagemaker.hosting.chaos import Chaos
from local_sagemaker.hosting.component import Component
from local_sagemaker.hosting.deployment import Deployment, Fleets, Variant
from local_sagemaker.hosting.instance import Instance
from local_sagemaker.hosting.pool import Cancelled, Pool, StartFailed
from local_sagemaker.hosting.rollout import Rollout
from local_sagemaker.hosting.sessions import Sessions
from local_sagemaker.hosting.settings import Timing

log = logging.getLogger(__name__)

Document = dict[str, Any]


class Report(Protocol):
    """Where an endpoint writes how it is; ``plan`` is what it serves, once it does."""

    def __call__(self, status: str, reason: str | None = None, plan: Document | None = None) -> None: ...


class LiveEndpoint:
    """Its changes run one after the other, each in a thread of its own; ``changed`` guards all of it."""

    def __init__(self, name: str, fleets: Fleets, timing: Timing, report: Report) -> None:
        self.name = name
        self.changed = threading.Condition(threading.RLock())
        self.current: Deployment | None = None
        self.components: dict[str, Component] = {}
        self.sessions = Sessions()
        self.chaos = Chaos()
        self._next: Deployment | None = None
        self._share = 0.0
        self._fleets = fleets
        self._timing = timing
        self._report = report
        self._deleted = threading.Event()
        self._turn = threading.Lock()

    @property
    def deleted(self) -> bool:
        return self._deleted.is_set()

    def create(self, plan: Document) -> None:
        self._in_turn(lambda: self._create(plan))

    def update(self, plan: Document, deployment_config: Document | None) -> None:
        self._in_turn(lambda: self._update(plan, deployment_config))

    def scale(self, changes: list[Document]) -> None:
        self._in_turn(lambda: self._scale(changes))

    def delete(self, then: Callable[[], None]) -> None:
        self._deleted.set()
        with self.changed:
            self.changed.notify_all()
        self._in_turn(lambda: self._delete(then))

    def shut_down(self) -> None:
        """The machine's SageMaker ends, the endpoint does not: its state stays as it is."""
        self._deleted.set()
        with self.changed:
            pools = self.pools()
            for pool in pools:
                pool.stop()
        deadline = time.monotonic() + self._timing.kill_after + 5
        for pool in pools:
            pool.wait_ended(max(deadline - time.monotonic(), 0))

    def deployments(self) -> list[Deployment]:
        return [each for each in (self.current, self._next) if each is not None]

    def pools(self) -> list[Pool]:
        with self.changed:
            variants = [variant for each in self.deployments() for variant in each.variants.values()]
            pools = [variant.pool for variant in variants if variant.pool]
            return pools + [component.pool for component in self.components.values() if component.pool]

    def instances(self) -> list[Instance]:
        return [instance for pool in self.pools() for instance in pool.instances()]

    def choose(self, target: str | None) -> Variant | None:
        """The variant of the next request, by weight, or the one that is asked for. With ``changed`` held."""
        if self.current is None:
            return None
        deployment = self._next if self._next is not None and random.random() < self._share else self.current
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
                    self._report("Failed", "The service failed; its own log has the reason.")

        threading.Thread(target=run, daemon=True, name=self.name).start()

    def _create(self, plan: Document) -> None:
        try:
            deployment = self._start(plan)
        except StartFailed as error:
            self._report("Failed", str(error))
        except Cancelled:
            pass
        else:
            with self.changed:
                self.current = deployment
                self.changed.notify_all()
            self._report("InService", plan=plan)

    def _start(self, plan: Document) -> Deployment:
        return self._fleets.start(self.name, plan, self.changed, self._deleted.is_set)

    def _update(self, plan: Document, deployment_config: Document | None) -> None:
        if self._deleted.is_set():
            return
        try:
            self._next = self._start(plan)
            self._shift(self._next, Rollout.of(deployment_config, sum(each["Count"] for each in plan["Variants"])))
        except StartFailed as error:
            self._report("RollingBack", str(error))
            self._abandon()
            self._report("InService", str(error))
        except Cancelled:
            self._abandon()
        else:
            with self.changed:
                before, self.current, self._next = self.current, self._next, None
            self._report("InService", plan=plan)
            if before is not None:
                before.drain()

    def _shift(self, deployment: Deployment, rollout: Rollout) -> None:
        """:raises StartFailed: an instance of the new fleet is lost on the way."""
        for share in rollout.shares:
            with self.changed:
                self._share = share
            self._bake(deployment, rollout.wait)
        self._bake(deployment, rollout.termination_wait)

    def _bake(self, deployment: Deployment, seconds: float) -> None:
        until = time.monotonic() + self._timing.scaled(seconds)
        while True:
            if deployment.lost():
                raise StartFailed("An instance of the new fleet failed its health checks while traffic moved to it.")
            if self._deleted.is_set():
                raise Cancelled
            if (left := until - time.monotonic()) <= 0:
                return
            self._deleted.wait(min(left, 0.1))

    def _abandon(self) -> None:
        with self.changed:
            failed, self._next, self._share = self._next, None, 0.0
        if failed is not None:
            failed.drain()

    def _scale(self, changes: list[Document]) -> None:
        if self.current is None or self._deleted.is_set():
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
                    variant.pool.wait_ready(self._deleted.is_set)
                except StartFailed as error:
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
            self.current = self._next = None
            self.components.clear()
        for component in components:
            component.stop()
        for deployment in ending:
            deployment.stop()
        for deployment in ending:
            deployment.wait_ended(self._timing.kill_after + 5)
        then()
