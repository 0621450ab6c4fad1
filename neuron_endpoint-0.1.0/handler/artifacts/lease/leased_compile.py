"""Compiles under a lease. The result is published once, or the failure is recorded; an interruption leaves neither."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.lease.acquisition_options import (
    Acquired,
    AcquisitionOptions,
    Compilation,
    Compile,
    EventListener,
)
from handler.artifacts.lease.clock import Clock
from handler.artifacts.lease.compile_errors import CompileFailed
from handler.artifacts.lease.lease import Lease
from handler.artifacts.lease.negative_entries import NegativeEntries
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.publication import CompileInputs
from handler.processes import alive
from handler.storage.storage_errors import ArtifactError

# Compiles on one instance while the compiler crashes.
ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class LeasedCompile:
    """One compile while `lease` is held. It writes to the store only as the holder."""

    store: ArtifactStore
    lease: Lease
    failures: NegativeEntries
    options: AcquisitionOptions
    emit: EventListener
    clock: Clock

    def run(self, compile: Compile, target: Path, missing: tuple[ArtifactKey, ...]) -> Acquired:
        """Compiles to a directory beside `target`, and publishes the result.

        :raises CompileFailed: the compile failed. Other instances that need this key fail, too, for a while.
        """
        began = self.clock.now()
        try:
            directory = self._compiled(compile, target, missing)
        except CompileFailed as error:
            self._remember(missing[0], error)
            raise
        published = self._publish(directory, missing, self.clock.now() - began)
        return Acquired(directory, compiled=True, published=published)

    def _compiled(self, compile: Compile, target: Path, missing: tuple[ArtifactKey, ...]) -> Path:
        """The directory with the result. If the compiler crashes, this tries once more."""
        for attempt in range(ATTEMPTS):
            directory = fresh_directory(target)
            self.emit({"event": "artifact_compile", "keys": [key.digest for key in missing]})
            try:
                compile(Compilation(directory, missing, lambda: self.lease.held))
                break
            except CompileFailed as error:
                if not error.crashed or attempt == ATTEMPTS - 1 or not self.lease.held:
                    raise
                self.emit({"event": "artifact_compile_crashed", "key": missing[0].digest, "reason": error.reason})
        return directory

    def _publish(self, directory: Path, missing: tuple[ArtifactKey, ...], seconds: float) -> bool:
        """Publishes the entries. False: another instance compiles again; this one has its artifacts anyway."""
        try:
            self.lease.confirm()
            for key in reversed(missing):
                machine = {**self.options.machine, "holder": self.lease.holder}
                inputs = CompileInputs(key.digest, key.kind, key.fields, seconds, machine)
                manifest = self.store.publish(directory, inputs, self._while_held)
                if manifest.machine.get("holder") != self.lease.holder:
                    raise self.lease.lost()  # another instance published first, so the store's entry is not this one
                self.emit({"event": "artifact_published", "key": key.digest, "seconds": seconds})
        except ArtifactError as error:
            self.emit({"event": "artifact_not_published", "code": error.code, "problem": error.message})
            return False
        return True

    def _while_held(self, done: int, total: int) -> None:
        """Raises LeaseLost if the lease is lost. Called after each file, the last time before the manifest."""
        if not self.lease.held:
            raise self.lease.lost()

    def _remember(self, key: ArtifactKey, error: CompileFailed) -> None:
        self.emit({"event": "artifact_compile_failed", "key": key.digest, "reason": error.reason})
        try:
            self.lease.confirm()
            self.failures.write(key, error, self.options.machine_name)
        except ArtifactError as store_error:
            event = {"event": "artifact_failure_not_stored", "code": store_error.code, "problem": store_error.message}
            self.emit(event)


def fresh_directory(target: Path) -> Path:
    """Creates an empty directory of this process beside `target`. Removes those of dead processes first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for other in target.parent.glob("*"):
        owner = re.fullmatch(re.escape(target.name) + r"\.compiled-(\d+)", other.name)
        if owner and (int(owner[1]) == os.getpid() or not alive(int(owner[1]))):
            shutil.rmtree(other)
    directory = target.with_name(f"{target.name}.compiled-{os.getpid()}")
    directory.mkdir()
    return directory
