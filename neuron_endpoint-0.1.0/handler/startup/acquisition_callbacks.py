"""What the search for artifacts calls: to restore, to compile, and to record its events."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from handler.artifacts.lease.acquisition_options import Compilation
from handler.artifacts.restore.model_paths import ModelPaths
from handler.artifacts.restore.restore import restore, source_of
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest import Manifest
from handler.engine.engine import Engine
from handler.json_value import Json
from handler.neuron.engine_plan import EnginePlan
from handler.startup.artifact_backends import ArtifactBackend
from handler.startup.progress_display import shown
from handler.startup.serving_state import ServingState
from handler.startup.shared_neff_cache import shared_neff_cache
from handler.startup.start_diagnosis import StartEngine, diagnosed_start


@dataclass(slots=True)
class AcquisitionCallbacks:
    """The callbacks of `Acquisition`: restore, compile, and record events.

    :param after: takes what must be done after the search, when no other instance waits for this one any more.
    :param deadline: monotonic seconds at which a restore gives up.
    """

    state: ServingState
    backend: ArtifactBackend
    plan: EnginePlan
    store: ArtifactStore
    paths: ModelPaths
    start: StartEngine
    after: ExitStack
    deadline: float
    wait_began: float | None = None
    engine: Engine | None = None

    def record_event(self, event: Mapping[str, Json]) -> None:
        self.state.artifacts.record(event)
        if event.get("event") == "artifact_wait":
            if self.wait_began is None:
                self.wait_began = time.monotonic()
                self.state.lifecycle.stage("wait for another instance's artifacts")
            machine = event.get("machine")
            holder = f"{machine} compiles them" if machine else "another instance publishes them"
            self.state.lifecycle.progress(0, 0, waiting=holder)

    def wait_ended(self) -> None:
        if self.wait_began is not None:
            self.state.artifacts.waited(time.monotonic() - self.wait_began)
            self.wait_began = None

    def restore(self, manifests: Sequence[Manifest], directory: Path) -> None:
        self.wait_ended()
        self.state.lifecycle.stage("restore artifacts")
        with shown(self.state.lifecycle, "restore artifacts") as progress:
            source, paths = source_of(self.store), self.paths
            done = restore(manifests, source, directory, paths=paths, progress=progress, deadline=self.deadline)
        self.state.artifacts.restored(done)

    def compile(self, wanted: Compilation) -> None:
        self.wait_ended()
        lifecycle, backend = self.state.lifecycle, self.backend
        backend.prepare()
        cache = backend.neff_cache(self.plan, self.store, wanted.missing[0])
        self.after.enter_context(shared_neff_cache(cache, lifecycle))
        began = time.monotonic()
        lifecycle.label("compile")
        try:
            with diagnosed_start():
                self.engine = self.start(backend.to_compile(self.plan, wanted.directory))
        finally:
            lifecycle.label("")
            self.state.artifacts.compiled(time.monotonic() - began)
        backend.collect(wanted.directory)
        lifecycle.stage("publish artifacts")
