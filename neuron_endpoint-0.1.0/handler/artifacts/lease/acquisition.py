"""Gets the compiled artifacts for a start: restores them from the store, or compiles them once for the whole fleet.

A start needs one or two keys: the graph's, and the weights' if they are stored separately. Everything missing is
compiled together, under the lease of the first missing key, and published in reverse order. So if the first key is
found, the others are found, too. An entry is visible to others only with its manifest, which the store accepts once.

A waiting instance polls with one request, for the lease, which tells whether the holder is alive. It looks for
manifests and failures only when the lease is no longer held. Explaining a miss reads every manifest of the store, so
only the instance that compiles, or that must fail, does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.identity.miss_report import equal_fields, explain
from handler.artifacts.lease.acquisition_options import (
    Acquired,
    AcquisitionOptions,
    Compile,
    EventListener,
    OnMiss,
    Restore,
    ignore_event,
)
from handler.artifacts.lease.clock import Clock, RealClock
from handler.artifacts.lease.compile_errors import AcquireTimedOut, NoEntry
from handler.artifacts.lease.entry_restore import EntryRestore
from handler.artifacts.lease.lease import Contender
from handler.artifacts.lease.lease_record import LeaseState
from handler.artifacts.lease.leased_compile import LeasedCompile
from handler.artifacts.lease.negative_entries import NegativeEntries
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest import Manifest
from handler.json_value import Json
from handler.storage.storage_errors import ArtifactError, StoreUnavailable

LEASES = "leases/"


class Acquisition:
    """The search of one start for its artifacts.

    :param keys: one or two keys, in the order in which the engine needs them.
    :param target: the directory to restore to. A compile writes to a directory beside it.
    :param deadline: monotonic seconds (`Clock.now`) after which the search fails.
    """

    def __init__(
        self,
        store: ArtifactStore,
        keys: Sequence[ArtifactKey],
        target: Path,
        restore: Restore,
        compile: Compile,
        deadline: float,
        *,
        options: AcquisitionOptions | None = None,
        failures: NegativeEntries | None = None,
        listener: EventListener = ignore_event,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._store, self._keys, self._target = store, tuple(keys), target
        self._restore, self._compile, self._deadline = EntryRestore(store, restore, target), compile, deadline
        self._options, self._emit = options or AcquisitionOptions(), listener
        self._clock, self._random = clock or RealClock(), random or Random()
        self._failures = failures or NegativeEntries(store.objects, self._clock, signer=store.signer)
        self._began = self._clock.now()
        self._polled: tuple[ArtifactKey, Contender] | None = None
        self._last_event: object = None
        self._compiling = False

    def run(self) -> Acquired:
        """Restores or compiles the artifacts.

        :raises NoEntry: there is no entry, and the policy is to fail.
        :raises FailedBefore: the compile failed recently, on this instance or another.
        :raises CompileFailed: the compile failed.
        :raises AcquireTimedOut: the deadline passed.
        :raises ArtifactError: the store or the restore failed.
        """
        while True:
            doing = "waiting for another instance to publish them"
            try:
                if (acquired := self._attempt()) is not None:
                    return acquired
            except StoreUnavailable as error:
                if self._compiling:
                    raise
                doing = error.message  # a short outage of the service, within a wait of up to an hour
                self._once("artifact_store_unavailable", where=error.where, reason=error.problem)
            self._pause(doing)

    def _attempt(self) -> Acquired | None:
        """Looks at the store once, and restores or compiles if possible. None means: wait."""
        if self._polled and self._is_held(self._polled[1]):
            return None
        found = self._find()
        missing = [key for key in self._keys if key.digest not in found]
        if not missing:
            return self._restored([found[key.digest] for key in self._keys])
        first = missing[0]
        if self._options.on_miss is OnMiss.FAIL:
            raise NoEntry(self._store.uri, self._explain(first), self._options.setting)
        self._failures.require_none(first, self._options.machine_name)
        if self._polled is None or self._polled[0] != first:
            self._polled = first, self._contender(first)
            if self._is_held(self._polled[1]):
                return None
        if self._options.on_miss is OnMiss.WAIT:
            self._once("artifact_wait", key=first.digest, machine=None)
            return None
        return self._contend(self._polled[1])

    def _contend(self, contender: Contender) -> Acquired | None:
        if self._clock.now() >= self._deadline:
            return None
        predecessor = contender.record
        if (lease := contender.acquire()) is None:
            return None
        if predecessor is not None and not predecessor.released:
            self._emit({"event": "artifact_lease_taken_over", "machine": predecessor.machine, "fencing": lease.fencing})
        lease.keep(lambda: self._emit({"event": "artifact_lease_lost"}), deadline=self._deadline)
        try:
            # Look again under the lease: the last holder may have published after the first look.
            found = self._find()
            if missing := tuple(key for key in self._keys if key.digest not in found):
                self._failures.require_none(missing[0], self._options.machine_name)
                self._explain(missing[0])
                self._compiling = True
                work = LeasedCompile(self._store, lease, self._failures, self._options, self._emit, self._clock)
                return work.run(self._compile, self._target, missing)
        finally:
            lease.release()
        return self._restored([found[key.digest] for key in self._keys])

    def _contender(self, key: ArtifactKey) -> Contender:
        name = f"{LEASES}{key.kind}/{key.digest}"
        return Contender(self._store.objects, name, self._clock, self._options.machine_name, self._options.lease)

    def _is_held(self, contender: Contender) -> bool:
        held = contender.poll() is LeaseState.HELD
        if held and contender.record is not None:
            record = contender.record
            self._once("artifact_wait", key=self._keys[0].digest, machine=record.machine, fencing=record.fencing)
        return held

    def _find(self) -> dict[str, Manifest]:
        found = {key.digest: self._store.find(key.digest, key.kind) for key in self._keys}
        return {digest: manifest for digest, manifest in found.items() if manifest is not None}

    def _restored(self, manifests: Sequence[Manifest]) -> Acquired | None:
        if not self._restore.run(manifests):
            return None
        machine, message = dict(manifests[0].machine), equal_fields(manifests[0])
        keys: list[Json] = [manifest.key for manifest in manifests]
        self._emit({"event": "artifact_restored", "message": message, "keys": keys, "compiled_on": {**machine}})
        return Acquired(self._target, compiled=False, published=True)

    def _explain(self, key: ArtifactKey) -> str:
        try:
            miss = explain(key, self._store.entries(key.kind))
        except ArtifactError as error:
            self._emit({"event": "artifact_miss", "key": key.digest, "kind": key.kind, "problem": error.message})
            return f"No entry for key {key.digest[:16]}; the store's entries cannot be listed: {error.message}"
        self._emit(miss.event())
        return miss.text()

    def _pause(self, doing: str) -> None:
        left = self._deadline - self._clock.now()
        if left <= 0:
            raise AcquireTimedOut(self._clock.now() - self._began, doing)
        self._clock.sleep(min(left, self._options.poll * self._random.uniform(0.5, 1.5)))

    def _once(self, event: str, **values: Json) -> None:
        """Emits an event, unless it equals the last one."""
        if (event, values) != self._last_event:
            self._last_event = event, values
            self._emit({"event": event, **values})
