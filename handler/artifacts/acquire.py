"""The way of a start to its compiled artifacts: find and restore them, or compile them once for the whole fleet.

Wanted are one or two keys: a graph's, and its weights' where they are stored apart. Whatever is missing is compiled
together, under the lease of the first that is missing, and published in the opposite order: who finds the first finds
the rest. Nothing is visible to others before its manifest, which the store accepts once.

A waiter's poll is one request, for the lease: it tells whether the holder is alive, has finished or has failed.
Manifests are looked for when it changes hands. An explanation of the miss reads every manifest of the store, so of a
fleet only the one that compiles, or must fail, asks for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random

from handler.artifacts import layout, lease
from handler.artifacts.compile_errors import AcquireTimedOut, CompileFailed, LeaseLost, NoEntry
from handler.artifacts.errors import ArtifactError, NotFound, StoreUnavailable
from handler.artifacts.key import Key
from handler.artifacts.lease import Contender, Lease
from handler.artifacts.lease_record import Standing
from handler.artifacts.manifest import Manifest
from handler.artifacts.miss import explain
from handler.artifacts.negative_entry import NegativeEntries
from handler.artifacts.publication import Ingredients
from handler.artifacts.store import Store
from handler.artifacts.timing import RealTime, Timing
from handler.json_value import Json

LEASES = "leases/"


class OnMiss(StrEnum):
    """What to do about a miss: compile (or wait for whoever does), fail, or only ever wait for another to publish."""

    COMPILE = "compile"
    FAIL = "fail"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Compilation:
    """What a compiler is asked for.

    :param directory: empty; to be filled with the artifacts as the engine loads them.
    :param missing: the keys that have no entry.
    :param deadline: monotonic seconds (`Timing.now`) by which it should have given up.
    :param held: whether the lease is still ours; when not, the result serves this instance alone.
    """

    directory: Path
    missing: tuple[Key, ...]
    deadline: float
    held: Callable[[], bool]


# Fills `directory`. Raises CompileFailed for what would fail again; any other error is not remembered.
Compile = Callable[[Compilation], None]
# Brings entries to a directory: `restore.restore` with its source, paths and progress.
Restore = Callable[[Sequence[Manifest], Path], object]
Listener = Callable[[Mapping[str, Json]], None]


@dataclass(frozen=True, slots=True)
class Options:
    """Times in seconds.

    :param poll: the mean between two polls of a waiter; each is drawn from a half to one and a half of it, so that a
        fleet that began together does not ask together. 1,000 instances make 100 requests a second of it.
    :param setting: the setting that `on_miss` is from, for errors.
    """

    on_miss: OnMiss = OnMiss.COMPILE
    lease: float = lease.SECONDS
    poll: float = 10.0
    machine: Mapping[str, str] = field(default_factory=dict)
    setting: str = "ENDPOINT_ON_MISS"


@dataclass(frozen=True, slots=True)
class Acquired:
    """Artifacts on this machine.

    :param path: what the engine loads: the target when restored, a directory beside it when compiled here.
    :param published: whether what was compiled here is in the store: not when the lease was lost, or the store failed.
    """

    path: Path
    compiled: bool
    published: bool
    manifests: tuple[Manifest, ...] = ()


def unheard(event: Mapping[str, Json]) -> None:
    """For those who do not listen."""


class Acquisition:
    """One start's search for its artifacts.

    :param keys: one or two, in the order in which the engine needs them.
    :param target: the directory to restore to; `<target>.compiled` is where a compile is made.
    :param deadline: monotonic seconds (`Timing.now`) after which it gives up.
    """

    def __init__(
        self,
        store: Store,
        keys: Sequence[Key],
        target: Path,
        restore: Restore,
        compile: Compile,
        deadline: float,
        *,
        options: Options | None = None,
        failures: NegativeEntries | None = None,
        listener: Listener = unheard,
        timing: Timing | None = None,
        random: Random | None = None,
    ) -> None:
        self._store, self._keys, self._target = store, tuple(keys), target
        self._restore, self._compile, self._deadline = restore, compile, deadline
        self._options, self._tell = options or Options(), listener
        self._timing, self._random = timing or RealTime(), random or Random()
        self._failures = failures or NegativeEntries(store.objects, self._timing)
        self._began = self._timing.now()
        self._machine = " ".join(self._options.machine.values())
        self._contenders: dict[str, Contender] = {}
        self._told: object = None

    def run(self) -> Acquired:
        """Returns with the artifacts, or raises.

        :raises NoEntry: a miss, and the policy is to fail.
        :raises FailedBefore: it failed to compile a while ago, here or elsewhere.
        :raises CompileFailed: it failed now.
        :raises AcquireTimedOut: the deadline passed.
        :raises ArtifactError: the store or the restore failed.
        """
        trouble = ""
        while True:
            try:
                if (acquired := self._attempt()) is not None:
                    return acquired
                trouble = ""
            except StoreUnavailable as error:
                trouble = error.message  # a service that is away for a moment, during a wait of an hour
                self._once("artifact_store_unavailable", reason=error.reason)
            self._pause(trouble)

    def _attempt(self) -> Acquired | None:
        """One look at the store, and what follows from it; None when there is nothing to do but wait."""
        contender = self._contenders.get(self._missing[0].digest) if self._contenders else None
        if contender is not None:
            standing = contender.look()
            if standing is Standing.HELD:
                self._waits_for(contender)
                return None
        found = self._find()
        missing = tuple(key for key in self._keys if key.digest not in found)
        if not missing:
            return self._restored(tuple(found[key.digest] for key in self._keys))
        if self._options.on_miss is OnMiss.FAIL:
            raise NoEntry(self._store.uri, self._explained(missing[0]), self._options.setting)
        self._missing = missing
        self._failures.require_none(missing[0])
        if contender is None or missing[0].digest not in self._contenders:
            return self._first_look(missing)
        if self._options.on_miss is OnMiss.WAIT:
            self._once("artifact_wait", key=missing[0].digest, holder=None)
            return None
        return self._contend(contender, missing)
