"""A live endpoint: its creation, updates with rollback and deletion."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Protocol

from local_sagemaker.hosting.component import Component
from local_sagemaker.hosting.fleets import Deployment, Document, Fleets, Variant
from local_sagemaker.hosting.instances.instance import Instance
from local_sagemaker.hosting.instances.instance_pool import Cancelled, InstanceStartFailed, Pool
from local_sagemaker.hosting.instances.instance_routing import StickySessions

log = logging.getLogger(__name__)


class Report(Protocol):
    """Records an endpoint's status. ``plan`` is the configuration that it serves, once it serves it."""

    def __call__(self, status: str, reason: str | None = None, plan: Document | None = None) -> None: ...


class LiveEndpoint:
    """A live endpoint. Its changes run one after the other, each in its own thread; ``changed`` guards its state.

    :ivar current: the deployment that serves.
    :ivar pending: the deployment that is being started to replace it.
    :ivar ended: the endpoint is being deleted, or the service ends.
    :ivar deleted: for the last change of each inference component, by name: set if the component was deleted.
    :ivar starting: copies of inference components that do not serve yet.
    :ivar draining: pools that end after their last request.
    """

    def __init__(self, name: str, fleets: Fleets, report: Report) -> None:
        self.name = name
        self.changed = threading.Condition(threading.RLock())
        self.current: Deployment | None = None
        self.components: dict[str, Component] = {}
        self.sessions = StickySessions()
        self.deleted: dict[str, threading.Event] = {}
        self.starting: list[Pool] = []
        self.draining: list[Pool] = []
        self.pending: Deployment | None = None
        self.fleets = fleets
        self._report = report
        self.ended = threading.Event()
        self._turn = threading.Lock()

    def serve(self, plan: Document) -> None:
        """Starts a fleet for a plan. The one before serves until the new one is in service, or goes on if it fails."""
        self._in_turn(lambda: self._serve(plan))

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
        deadline = time.monotonic() + self.fleets.settings.timing.kill_after + 5
        for pool in pools:
            pool.wait_ended(max(deadline - time.monotonic(), 0))

    def pools(self) -> list[Pool]:
        with self.changed:
            pools = [pool for each in (self.current, self.pending) if each is not None for pool in each.pools()]
            copies = [component.pool for component in self.components.values() if component.pool]
            self.draining = [pool for pool in self.draining if pool.instances()]
            return list(dict.fromkeys([*pools, *copies, *self.starting, *self.draining]))

    def instances(self) -> list[Instance]:
        return [instance for pool in self.pools() for instance in pool.instances()]

    def choose(self, target: str | None) -> Variant | None:
        """Returns the variant for a request: the requested one, or one by weight. Call it with ``changed`` held."""
        if self.current is None:
            return None
        if target is not None:
            return self.current.variants.get(target)
        weighed = [variant for variant in self.current.variants.values() if variant.weight > 0]
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

    def _serve(self, plan: Document) -> None:
        if self.ended.is_set():
            return
        before, deployment = self.current, Deployment(plan)
        with self.changed:
            self.pending = deployment
        try:
            self.fleets.start(self.name, deployment, self.changed, self.ended.is_set)
        except BaseException as error:
            with self.changed:
                self.pending = None
            if isinstance(error, InstanceStartFailed):
                self._report("InService" if before else "Failed", str(error))
            elif not isinstance(error, Cancelled):
                raise
            return
        with self.changed:
            self.current, self.pending = deployment, None
            self.draining += [] if before is None else before.pools()
            self.changed.notify_all()
        self._report("InService", plan=plan)
        if before is not None:
            for pool in before.pools():
                pool.drain()  # All traffic has moved to the new fleet. Each old instance ends after its last request.

    def _delete(self, then: Callable[[], None]) -> None:
        with self.changed:
            pools, components = self.pools(), list(self.components.values())
            self.current = self.pending = None
            self.components.clear()
        for component in components:
            component.stop()
        for pool in pools:
            pool.stop()
        for pool in pools:
            pool.wait_ended(self.fleets.settings.timing.kill_after + 5)
        then()
