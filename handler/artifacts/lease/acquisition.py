"""Finds the compiled artifacts of a start in the store, or takes the lease to compile them once for the whole fleet.

A start needs one or two keys: the graph's, and the weights' if they are stored separately. Everything missing is
compiled together, under the lease of the first missing key, and published in reverse order. So if the first key is
found, the others are found, too. An entry is visible to others only with its manifest, which the store accepts once.

A waiting instance polls with one request, for the lease, which tells whether the holder is alive. It looks for
manifests and failures only when the lease is no longer held. Explaining a miss reads up to a hundred manifests, so only
the instance that compiles, or that must fail, does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from random import Random

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.identity.miss_report import equal_fields, explain
from handler.artifacts.lease.compile_errors import AcquireTimedOut, NoEntry
from handler.artifacts.lease.lease import SECONDS, Clock, Contender, LeaseState, RealClock
from handler.artifacts.lease.leased_compile import EventListener, LeasedCompile
from handler.artifacts.lease.negative_entries import NegativeEntries
from handler.artifacts.store import object_names
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest import Manifest
from handler.json_value import Json
from handler.storage.object_store import size_of
from handler.storage.storage_errors import (
    ArtifactError,
    DigestMismatch,
    EntryDamaged,
    NotFound,
    SignatureRefused,
    StoreUnavailable,
)
from handler.storage.transfer.download_directory import boot_id

LEASES = "leases/"
# Manifests that are read to explain a miss. A store that many models share can have thousands.
MOST_COMPARED = 100
# Seconds for which a lease protects a compile, which may take hours. One that hangs blocks nobody for longer.
LONGEST_COMPILE = 12 * 3600.0
WAITING = "waiting for another instance to publish them"
# The entries of all keys of a start, in their order.
Entries = tuple[Manifest, ...]


class OnMiss(StrEnum):
    """What to do on a miss: compile (or wait for the instance that does), fail, or only wait until another publishes.

    `WAIT` is for instances that can serve a model but are too small to compile it.
    """

    COMPILE = "compile"
    FAIL = "fail"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class AcquisitionOptions:
    """Times in seconds.

    :param lease: how long a lease lasts without renewal. If a holder dies, the others wait this long.
    :param poll: the mean interval between two polls of a waiting instance. Each interval is drawn from 0.5 to 1.5 times
        the mean, so that a fleet that started together does not poll together. 1,000 instances send 100 requests a
        second.
    :param machine: the machine that compiles (instance type, host name), for manifests, leases and messages.
    :param boot: this host's boot id, which tells it from others.
    :param environ: the process's variables. Their secrets are removed from the record of a failed compile.
    :param settings: this start's `settings_digest`. A recorded failure counts for equal settings.
    """

    on_miss: OnMiss = OnMiss.COMPILE
    lease: float = SECONDS
    poll: float = 10.0
    machine: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""
    boot: str = field(default_factory=boot_id)

    @property
    def machine_name(self) -> str:
        return " ".join(self.machine.values())


class Acquisition:
    """The search of one start for its artifacts.

    :param keys: one or two keys, in the order in which the engine needs them.
    :param deadline: monotonic seconds (`Clock.now`) after which the search fails. It does not end a compile.
    :param emit: gets the events of the search, of the compile and of its lease.
    """

    def __init__(
        self,
        store: ArtifactStore,
        keys: Sequence[ArtifactKey],
        deadline: float,
        options: AcquisitionOptions | None = None,
        *,
        emit: EventListener = lambda event: None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._store, self._keys, self._deadline = store, tuple(keys), deadline
        self._options, self._emit = options or AcquisitionOptions(), emit
        self._clock, self._random = clock or RealClock(), random or Random()
        own = self._options
        self._failures = NegativeEntries(
            store.objects, self._clock, own.environ, signer=store.signer, settings=own.settings, boot=own.boot
        )
        self._began = self._clock.now()
        self._polled: tuple[ArtifactKey, Contender] | None = None
        self._last_event: object = None
        self._vanished = False
        self._refused: set[str] = set()

    @contextmanager
    def turn(self) -> Iterator[Entries | LeasedCompile]:
        """Waits until there is something to do, and gives it: entries to restore, or a compile to run.

        Within the block, do nothing else. A lease is released at its end. An error of a restore that may pass ends the
        block without it, after a pause: a store that is away for a moment, and an entry that was deleted after it was
        found. So take turns in a loop until one has come to its end.

        :raises NoEntry: there is no entry, and the policy is to fail.
        :raises SignatureRefused: the entry is signed with another key, or not at all and the policy is not to compile.
        :raises FailedBefore: the compile failed recently, on this instance or another.
        :raises AcquireTimedOut: the deadline passed.
        :raises EntryDamaged: an object is missing for the second time, is cut short, or has another content.
        :raises ArtifactError: the store or the restore failed.
        """
        turn = self._next()
        if isinstance(turn, LeasedCompile):
            with turn.lease:
                yield turn
            return
        try:
            yield turn
        except (NotFound, DigestMismatch, StoreUnavailable) as error:
            self._pause(self._failed_restore(turn, error))
            return
        machine, message = dict(turn[0].machine), equal_fields(turn[0])
        keys: list[Json] = [manifest.key for manifest in turn]
        self._emit({"event": "artifact_restored", "message": message, "keys": keys, "compiled_on": {**machine}})

    def _next(self) -> Entries | LeasedCompile:
        """Looks at the store until there is something to do. A compile's lease is held, and renewed."""
        while True:
            doing = WAITING
            try:
                if (turn := self._look()) is not None:
                    return turn
            except StoreUnavailable as error:
                doing = self._outage(error)
            self._pause(doing)

    def _look(self) -> Entries | LeasedCompile | None:
        """Looks at the store once. None means: wait."""
        if self._polled and self._is_held(self._polled[1]):
            return None
        entries, missing = self._find()
        if not missing:
            return entries
        first = missing[0]
        if self._options.on_miss is OnMiss.FAIL:
            raise NoEntry(self._store.uri, self._explain(first))
        self._failures.require_none(first)
        if self._polled is None or self._polled[0] != first:
            self._polled = first, self._contender(first)
            if self._is_held(self._polled[1]):
                return None
        if self._options.on_miss is OnMiss.WAIT:
            self._once("artifact_wait", key=first.digest, machine=None)
            return None
        return self._contend(self._polled[1])

    def _contend(self, contender: Contender) -> Entries | LeasedCompile | None:
        if self._clock.now() >= self._deadline:
            return None
        predecessor = contender.record
        if (lease := contender.acquire()) is None:
            return None
        if predecessor is not None and not predecessor.released:
            self._emit({"event": "artifact_lease_taken_over", "machine": predecessor.machine, "fencing": lease.fencing})
        with ExitStack() as stack:
            lost = {"event": "artifact_lease_lost"}
            stack.enter_context(lease.keep(lambda: self._emit(lost), self._clock.now() + LONGEST_COMPILE))
            # Look again under the lease: the last holder may have published after the first look.
            entries, missing = self._find()
            if not missing:
                return entries
            self._failures.require_none(missing[0])
            self._explain(missing[0])
            stack.pop_all()  # `turn` releases the lease
        machine = self._options.machine
        return LeasedCompile(self._store, lease, missing, self._failures, machine, self._emit, self._clock)

    def _contender(self, key: ArtifactKey) -> Contender:
        name = f"{LEASES}{key.kind}/{key.digest}"
        return Contender(self._store.objects, name, self._clock, self._options.machine_name, self._options.lease)

    def _is_held(self, contender: Contender) -> bool:
        held = contender.poll() is LeaseState.HELD
        if held and contender.record is not None:
            record = contender.record
            self._once("artifact_wait", key=self._keys[0].digest, machine=record.machine, fencing=record.fencing)
        return held

    def _find(self) -> tuple[Entries, tuple[ArtifactKey, ...]]:
        """The entries of the keys, and the keys that have none."""
        looked_up = [(key, self._entry(key)) for key in self._keys]
        missing = tuple(key for key, entry in looked_up if entry is None)
        return tuple(entry for _, entry in looked_up if entry is not None), missing

    def _entry(self, key: ArtifactKey) -> Manifest | None:
        """The entry of a key. One that nobody has signed counts as none if it is to be replaced by a compile."""
        try:
            return self._store.find(key.digest, key.kind)
        except SignatureRefused as error:
            if not error.unsigned or self._options.on_miss is not OnMiss.COMPILE:
                raise
            if key.digest not in self._refused:
                self._refused.add(key.digest)
                self._emit({"event": "artifact_signature_refused", "key": key.digest, "problem": error.message})
            return None

    def _failed_restore(self, entries: Entries, error: ArtifactError) -> str:
        """What to wait for after a restore that failed.

        :raises EntryDamaged: the entry is damaged, and the store can be used.
        """
        if isinstance(error, StoreUnavailable):
            try:
                if not self._cut_short(entries):
                    return self._outage(error)
            except StoreUnavailable as outage:
                return self._outage(outage)
        elif isinstance(error, NotFound) and not self._vanished:
            self._vanished = True
            return WAITING
        names = [object_names.manifest_name(entry.kind, entry.key) for entry in entries]
        raise EntryDamaged([self._store.objects.location(name).uri for name in names], error) from error

    def _cut_short(self, entries: Entries) -> bool:
        """Whether an object is cut short. Each request for such an object looks like a broken connection."""
        files = chain.from_iterable(entry.files for entry in entries)
        sizes = ((size_of(self._store.objects, object_names.object_name(file.digest)), file.size) for file in files)
        return any(size not in {None, expected} for size, expected in sizes)

    def _outage(self, error: StoreUnavailable) -> str:
        """A short outage of the service, within a wait of up to an hour."""
        self._once("artifact_store_unavailable", where=error.where, reason=error.problem)
        return error.message

    def _explain(self, key: ArtifactKey) -> str:
        """Explains a miss, in an event and in a sentence. A start goes on, whatever the other entries contain."""
        try:
            miss = explain(key, self._store.entries(key.kind, newest=MOST_COMPARED))
        except Exception as error:
            problem = error.message if isinstance(error, ArtifactError) else f"{type(error).__name__}: {error}"[:300]
            self._emit({"event": "artifact_miss", "key": key.digest, "kind": key.kind, "problem": problem})
            return f"No entry for key {key.digest[:16]}; the store's entries cannot be compared: {problem}"
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
