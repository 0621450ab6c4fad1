"""A compile under a lease: what comes out is published once, and a failure remembered; or neither, if it breaks off."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
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
from handler.artifacts.store.manifest import Manifest
from handler.artifacts.store.publication import CompileInputs
from handler.processes import alive
from handler.storage.storage_errors import ArtifactError


class LeasedCompile:
    """One compile, made while `lease` is held. What it writes to the store, it writes only as the holder."""

    def __init__(
        self,
        store: ArtifactStore,
        lease: Lease,
        failures: NegativeEntries,
        options: AcquisitionOptions,
        listener: EventListener,
        timing: Clock,
    ) -> None:
        self._store, self._lease, self._failures = store, lease, failures
        self._options, self._tell, self._timing = options, listener, timing

    def run(
        self,
        compile: Compile,
        target: Path,
        missing: tuple[ArtifactKey, ...],
        found: Sequence[Manifest],
        deadline: float,
    ) -> Acquired:
        """Compiles beside `target`, and publishes.

        :param found: entries that are wanted as well and were there already; the compiler makes all there is anew.
        :raises CompileFailed: it did; whoever wants this key within the next while is told so.
        """
        directory = fresh_directory(target)
        began = self._timing.now()
        self._tell({"event": "artifact_compile", "keys": [key.digest for key in missing]})
        try:
            compile(Compilation(directory, missing, deadline, lambda: self._lease.held))
        except CompileFailed as error:
            self._remember(missing[0], error)
            raise
        manifests = self._publish(directory, missing, self._timing.now() - began)
        published = len(manifests) == len(missing)
        return Acquired(directory, compiled=True, published=published, manifests=(*found, *manifests))

    def _publish(self, directory: Path, missing: tuple[ArtifactKey, ...], seconds: float) -> list[Manifest]:
        """What could not be published is compiled again by another; this instance has what it needs in any case."""
        manifests: list[Manifest] = []
        try:
            self._lease.confirm()
            for key in reversed(missing):
                machine = {**self._options.machine, "holder": self._lease.holder}
                ingredients = CompileInputs(key.digest, key.kind, key.fields, seconds, machine)
                manifest = self._store.publish(directory, ingredients, self._while_held)
                if manifest.machine.get("holder") != self._lease.holder:
                    raise self._lease.lost()  # another's, who was a moment earlier: what is here is not it
                manifests.append(manifest)
                self._tell({"event": "artifact_published", "key": key.digest, "seconds": seconds})
        except ArtifactError as error:
            self._tell({"event": "artifact_not_published", "code": error.code, "problem": error.message})
        return manifests

    def _while_held(self, done: int, total: int) -> None:
        """Called after each file, the last time just before the manifest is written."""
        if not self._lease.held:
            raise self._lease.lost()

    def _remember(self, key: ArtifactKey, error: CompileFailed) -> None:
        self._tell({"event": "artifact_compile_failed", "key": key.digest, "reason": error.reason})
        try:
            self._lease.confirm()
            self._failures.write(key, error, " ".join(self._options.machine.values()))
        except ArtifactError as trouble:
            self._tell({"event": "artifact_failure_not_stored", "code": trouble.code, "problem": trouble.message})


def fresh_directory(target: Path) -> Path:
    """An empty directory of this process beside `target`; what dead processes left there is removed first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob("*"):
        owner = re.fullmatch(re.escape(target.name) + r"\.compiled-(\d+)", left.name)
        if owner and (int(owner[1]) == os.getpid() or not alive(int(owner[1]))):
            shutil.rmtree(left)
    directory = target.with_name(f"{target.name}.compiled-{os.getpid()}")
    directory.mkdir()
    return directory
