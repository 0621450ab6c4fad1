"""The way of a start to its compiled artifacts: find and restore them, or compile them once for the whole fleet.

Wanted are one or two keys: a graph's, and its weights' where they are stored apart. Whatever is missing is compiled
together, under the lease of the first that is missing, and published in the opposite order: who finds the first finds
the rest. Nothing is visible to others before its manifest, which the store accepts once.

A waiter's poll is one request, for the lease: it tells whether the holder is alive. Manifests and failures are looked
for when it is not held any more. An explanation of the miss reads every manifest of the store, so of a fleet only the
one that compiles, or must fail, asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.identity.miss_report import explain
from handler.artifacts.lease.acquisition_options import (
    Acquired,
    AcquisitionOptions,
    Compile,
    EventListener,
    OnMiss,
    Restore,
    unheard,
)
from handler.artifacts.lease.clock import Clock, RealClock
from handler.artifacts.lease.compile_errors import AcquireTimedOut, NoEntry
from handler.artifacts.lease.lease import Contender
from handler.artifacts.lease.lease_record import LeaseState
from handler.artifacts.lease.leased_compile import LeasedCompile
from handler.artifacts.lease.negative_entries import NegativeEntries
from handler.artifacts.store import object_names as layout
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest import Manifest
from handler.json_value import Json
from handler.storage.storage_errors import ArtifactError, DigestMismatch, EntryDamaged, NotFound, StoreUnavailable

LEASES = "leases/"


class Acquisition:
    """One start's search for its artifacts.

    :param keys: one or two, in the order in which the engine needs them.
    :param target: the directory to restore to; a compile is made beside it.
    :param deadline: monotonic seconds (`Clock.now`) after which it gives up.
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
        listener: EventListener = unheard,
        timing: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._store, self._keys, self._target = store, tuple(keys), target
        self._restore, self._compile, self._deadline = restore, compile, deadline
        self._options, self._tell = options or AcquisitionOptions(), listener
        self._timing, self._random = timing or RealClock(), random or Random()
        self._failures = failures or NegativeEntries(store.objects, self._timing)
        self._began = self._timing.now()
        self._watched: tuple[ArtifactKey, Contender] | None = None
        self._told: object = None
        self._vanished = self._compiling = False

    def run(self) -> Acquired:
        """Returns with the artifacts, or raises.

        :raises NoEntry: a miss, and the policy is to fail.
        :raises FailedBefore: it failed to compile a while ago, here or elsewhere.
        :raises CompileFailed: it failed now.
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
                doing = error.message  # a service that is away for a moment, within a wait of an hour
                self._once("artifact_store_unavailable", where=error.where, reason=error.reason)
            self._pause(doing)

    def _attempt(self) -> Acquired | None:
        """One look at the store, and what follows from it; None when there is nothing to do but wait."""
        if self._watched and self._is_held(self._watched[1]):
            return None
        found = self._find()
        missing = [key for key in self._keys if key.digest not in found]
        if not missing:
            return self._restored([found[key.digest] for key in self._keys])
        first = missing[0]
        if self._options.on_miss is OnMiss.FAIL:
            raise NoEntry(self._store.uri, self._explain(first), self._options.setting)
        self._failures.require_none(first)
        if self._watched is None or self._watched[0] != first:
            self._watched = first, self._contender(first)
            if self._is_held(self._watched[1]):
                return None
        if self._options.on_miss is OnMiss.WAIT:
            self._once("artifact_wait", key=first.digest, machine=None)
            return None
        return self._contend(self._watched[1])

    def _contend(self, contender: Contender) -> Acquired | None:
        if self._timing.now() >= self._deadline:
            return None
        predecessor = contender.record
        if (lease := contender.take()) is None:
            return None
        if predecessor is not None and not predecessor.released:
            self._tell({"event": "artifact_lease_taken_over", "machine": predecessor.machine, "fencing": lease.fencing})
        lease.keep(lambda: self._tell({"event": "artifact_lease_lost"}), until=self._deadline)
        try:
            # Again, now that nobody else can publish: the last holder may have done so after we looked.
            found = self._find()
            missing = tuple(key for key in self._keys if key.digest not in found)
            if missing:
                self._failures.require_none(missing[0])
                self._explain(missing[0])
                self._compiling = True
                work = LeasedCompile(self._store, lease, self._failures, self._options, self._tell, self._timing)
                return work.run(self._compile, self._target, missing, tuple(found.values()), self._deadline)
        finally:
            lease.release()
        return self._restored([found[key.digest] for key in self._keys])

    def _contender(self, key: ArtifactKey) -> Contender:
        machine = " ".join(self._options.machine.values())
        name = f"{LEASES}{key.kind}/{key.digest}"
        return Contender(self._store.objects, name, self._timing, machine, self._options.lease)

    def _is_held(self, contender: Contender) -> bool:
        held = contender.look() is LeaseState.HELD
        if held and contender.record is not None:
            record = contender.record
            self._once("artifact_wait", key=self._keys[0].digest, machine=record.machine, fencing=record.fencing)
        return held

    def _find(self) -> dict[str, Manifest]:
        found = {key.digest: self._store.find(key.digest, key.kind) for key in self._keys}
        return {digest: manifest for digest, manifest in found.items() if manifest is not None}

    def _restored(self, manifests: Sequence[Manifest]) -> Acquired | None:
        try:
            self._restore(manifests, self._target)
        except NotFound as error:
            if self._vanished:
                raise self._damaged(manifests, error) from error
            self._vanished = True  # deleted after it was found: it is a miss now. Twice: the entry is damaged
            return None
        except DigestMismatch as error:
            raise self._damaged(manifests, error) from error
        self._tell({"event": "artifact_restored", "keys": [manifest.key for manifest in manifests]})
        return Acquired(self._target, compiled=False, published=True, manifests=tuple(manifests))

    def _damaged(self, manifests: Sequence[Manifest], error: ArtifactError) -> EntryDamaged:
        names = [layout.manifest_name(manifest.kind, manifest.key) for manifest in manifests]
        return EntryDamaged([self._store.objects.location(name).uri for name in names], error)

    def _explain(self, key: ArtifactKey) -> str:
        try:
            miss = explain(key, self._store.entries(key.kind))
        except ArtifactError as error:
            self._tell({"event": "artifact_miss", "key": key.digest, "kind": key.kind, "problem": error.message})
            return f"No entry for key {key.digest[:16]}; what there is cannot be listed: {error.message}"
        self._tell(miss.event())
        return miss.text()

    def _pause(self, doing: str) -> None:
        left = self._deadline - self._timing.now()
        if left <= 0:
            raise AcquireTimedOut(self._timing.now() - self._began, doing)
        self._timing.sleep(min(left, self._options.poll * self._random.uniform(0.5, 1.5)))

    def _once(self, event: str, **values: Json) -> None:
        """An event of a wait, unless it says what the last one said."""
        if (event, values) != self._told:
            self._told = event, values
            self._tell({"event": event, **values})
