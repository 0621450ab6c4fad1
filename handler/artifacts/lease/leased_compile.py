"""Compiles under a lease. The result is published once, or the failure is recorded; an interruption leaves neither."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.lease.compile_errors import CompileFailed
from handler.artifacts.lease.lease import Clock, Lease
from handler.artifacts.lease.negative_entries import NegativeEntries
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.publication import CompileInputs
from handler.errors import EndpointError
from handler.json_value import Json
from handler.processes import alive

# Compiles on one instance while the compiler crashes.
ATTEMPTS = 2
# This process's own directories. An earlier process of the container often had the same pid.
_made = set[Path]()
EventListener = Callable[[Mapping[str, Json]], None]
# Fills an empty directory with the artifacts, as the engine loads them. Raises CompileFailed for a failure that would
# happen again. Other errors are not remembered.
Compile = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class LeasedCompile:
    """One compile of what the store does not have. It writes to the store only while `lease` is held.

    :param missing: the keys that have no entry.
    :param machine: the machine that compiles (instance type, host name).
    """

    store: ArtifactStore
    lease: Lease
    missing: tuple[ArtifactKey, ...]
    failures: NegativeEntries
    machine: Mapping[str, str]
    emit: EventListener
    clock: Clock

    def run(self, compile: Compile, target: Path) -> bool:
        """Compiles to a directory beside `target`, and publishes the result.

        :returns: whether the store now has exactly these artifacts. Not if the lease was lost in the meantime or the
            store failed: then another instance compiles again, and this one has its artifacts anyway.
        :raises CompileFailed: the compile failed. Other instances that need this key fail, too, for a while.
        """
        began = self.clock.now()
        try:
            directory = self._compiled(compile, target)
        except CompileFailed as error:
            self._remember(error)
            raise
        return self._publish(directory, self.clock.now() - began)

    def _compiled(self, compile: Compile, target: Path) -> Path:
        """The directory with the result. If the compiler crashes, this tries once more."""
        for attempt in range(ATTEMPTS):
            directory = fresh_directory(target)
            self.emit({"event": "artifact_compile", "keys": [key.digest for key in self.missing]})
            try:
                compile(directory)
                break
            except CompileFailed as error:
                if not error.crashed or attempt == ATTEMPTS - 1 or not self.lease.held:
                    raise
                self.emit({"event": "artifact_compile_crashed", "key": self.missing[0].digest, "reason": error.reason})
        return directory

    def _publish(self, directory: Path, seconds: float) -> bool:
        try:
            self.lease.confirm()
            for key in reversed(self.missing):
                machine = {**self.machine, "holder": self.lease.holder}
                inputs = CompileInputs(key.digest, key.kind, key.fields, seconds, machine)
                manifest = self.store.publish(directory, inputs, self._while_held)
                if manifest.machine.get("holder") != self.lease.holder:
                    raise self.lease.lost()  # another instance published first, so the store's entry is not this one
                self.emit({"event": "artifact_published", "key": key.digest, "seconds": seconds})
        except EndpointError as error:  # of the store, the lease, or the key that signs
            self.emit({"event": "artifact_not_published", "code": error.code, "problem": error.message})
            return False
        return True

    def _while_held(self, done: int, total: int) -> None:
        """Raises LeaseLost if the lease is lost. Called after each file, the last time before the manifest."""
        if not self.lease.held:
            raise self.lease.lost()

    def _remember(self, error: CompileFailed) -> None:
        key = self.missing[0]
        self.emit({"event": "artifact_compile_failed", "key": key.digest, "reason": error.reason})
        try:
            self.lease.confirm()
            self.failures.write(key, error, " ".join(self.machine.values()))
        except EndpointError as store_error:
            event = {"event": "artifact_failure_not_stored", "code": store_error.code, "problem": store_error.message}
            self.emit(event)


def fresh_directory(target: Path) -> Path:
    """Creates an empty directory of this process beside `target`. Removes those of dead processes first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    directory = target.with_name(f"{target.name}.compiled-{os.getpid()}")
    _made.discard(directory)
    remove_dead(target)
    _made.add(directory)
    directory.mkdir()
    return directory


def remove_dead(target: Path) -> None:
    """Removes what dead processes have compiled beside `target`. A restore of the same needs the room."""
    for other in target.parent.glob("*"):
        owner = re.fullmatch(re.escape(target.name) + r"\.compiled-(\d+)", other.name)
        if owner and other not in _made and (int(owner[1]) == os.getpid() or not alive(int(owner[1]))):
            shutil.rmtree(other)
