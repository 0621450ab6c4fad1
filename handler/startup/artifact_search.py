"""Starts an engine with compiled artifacts: restored from the store, or compiled here and saved there.

The Neuron plugin compiles when it loads a model, and vLLM on a CPU when it first runs one. In both cases, compiling
means starting the engine, so an engine that was started to compile goes on to serve.
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from handler.artifacts.compile_caches.neff_cache import NeffCache
from handler.artifacts.identity.artifact_key import ArtifactKey, settings_digest
from handler.artifacts.lease.acquisition import Acquisition, AcquisitionOptions, Entries
from handler.artifacts.lease.leased_compile import LeasedCompile, remove_dead
from handler.artifacts.restore.restore import restore, source_of
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest_signature import signer
from handler.engine.engine import Engine
from handler.errors.base import one_line
from handler.json_value import Json
from handler.model.companions import Companions
from handler.neuron.engine_plan import EnginePlan, compiles_only
from handler.neuron.hardware.current_machine import this_machine
from handler.processes import current_environment
from handler.startup.artifact_backends import ArtifactBackend, artifact_backend
from handler.startup.lifecycle import PUBLISH
from handler.startup.progress_display import shown
from handler.startup.serving_state import ServingState
from handler.startup.start_diagnosis import StartEngine, diagnosed_start, explained_start_failure

logger = logging.getLogger(__name__)
# Seconds between two polls while another instance compiles, and the least number of polls within a lease.
POLL = 10.0
POLLS = 4


@dataclass(slots=True)
class StoreStart:
    """A start of an engine with artifacts from a store.

    :param start: starts an engine with a plan and warms it up.
    :ivar engine: the engine that has compiled, if this instance did.
    :ivar after: ends when no other instance waits for this one any more.
    """

    state: ServingState
    plan: EnginePlan
    backend: ArtifactBackend
    store: ArtifactStore
    start: StartEngine
    engine: Engine | None = None
    after: ExitStack = field(default_factory=ExitStack)
    _waits_since: float | None = None

    def run(self) -> Engine | None:
        """Restores the artifacts and starts an engine with them, or starts one that compiles and saves them."""
        config = self.state.config
        inputs = self.backend.key_inputs(self.plan)
        keys = self.backend.keys(inputs)
        target = config.scratch / "artifacts" / keys[0].digest[:32]
        deadline = time.monotonic() + config.artifact_deadline
        options = AcquisitionOptions(
            self.backend.on_miss(self.plan),
            config.artifact_lease,
            min(POLL, config.artifact_lease / POLLS),
            _machine(self.state),
            environ=current_environment(),
            settings=settings_digest(inputs),
        )
        search = Acquisition(self.store, keys, deadline, options, emit=self._record)
        restored = False
        with self.after:
            try:
                while not restored and self.engine is None:
                    with search.turn() as turn:
                        self._wait_ended()
                        if isinstance(turn, LeasedCompile):
                            turn.run(partial(self._compile, turn.missing[0]), target)
                        else:
                            self._restore(turn, target, deadline)
                            restored = True
            except Exception as error:
                if self.engine is None:
                    raise
                # The engine is warm and serves. The next start must compile again.
                logger.warning("the engine serves what it compiled, but the artifacts could not be saved: %s", error)
                problem = f"{type(error).__name__}: {one_line(str(error))}"
                self._record({"event": "artifact_not_published", "code": "not_saved", "problem": problem})
            except BaseException:
                if self.engine is not None:
                    self.engine.stop()
                raise
            finally:
                self._wait_ended()
        if self.engine is not None:
            return self.engine
        if compiles_only(self.plan.env):
            return None
        with explained_start_failure(self.state.lifecycle):
            return self.start(self.backend.to_load(self.plan, target))

    def _restore(self, entries: Entries, target: Path, deadline: float) -> None:
        self.state.lifecycle.stage("restore artifacts")
        remove_dead(target)
        with shown(self.state.lifecycle, "restore artifacts") as progress:
            source, paths = source_of(self.store), self.backend.paths(self.plan, target)
            done = restore(entries, source, target, paths=paths, progress=progress, deadline=deadline)
        self.state.artifacts.restored(done)

    def _compile(self, key: ArtifactKey, directory: Path) -> None:
        lifecycle, backend = self.state.lifecycle, self.backend
        backend.prepare()
        cache = backend.neff_cache(self.plan, self.store, key)
        with ExitStack() as attempt:
            # A failed attempt saves its graphs at once: the next one clears the cache and brings them from the store.
            attempt.enter_context(_shared_graphs(self.state, cache))
            began = time.monotonic()
            lifecycle.label("compile")
            try:
                with diagnosed_start():
                    self.engine = self.start(backend.to_compile(self.plan, directory))
            finally:
                lifecycle.label("")
                self.state.artifacts.compiled(time.monotonic() - began)
            lifecycle.stage(PUBLISH)
            backend.collect(directory)
            self.after.enter_context(attempt.pop_all())

    def _record(self, event: Mapping[str, Json]) -> None:
        self.state.artifacts.record(event)
        if event.get("event") == "artifact_wait":
            if self._waits_since is None:
                self._waits_since = time.monotonic()
                self.state.lifecycle.stage("wait for another instance's artifacts")
            machine = event.get("machine")
            holder = f"{machine} compiles them" if machine else "another instance publishes them"
            self.state.lifecycle.progress(0, 0, waiting=holder)

    def _wait_ended(self) -> None:
        if self._waits_since is not None:
            self.state.artifacts.waited(time.monotonic() - self._waits_since)
            self._waits_since = None


def engine_by_artifacts(
    state: ServingState, plan: EnginePlan, model: Path, companions: Companions, start: StartEngine
) -> Engine | None:
    """Starts an engine with artifacts from the configured store, and warms it up.

    :param start: starts an engine with a plan and warms it up.
    :returns: None if this machine only compiles, and the store has everything.
    :raises EndpointError: the store, the restore or the compile failed. The message has the reason and the fix.
    """
    backend = artifact_backend(state.config, plan, model, companions)
    state.lifecycle.stage("find artifacts")
    return StoreStart(state, plan, backend, open_store(state), start).run()


def engine_with_neff_cache(
    state: ServingState, plan: EnginePlan, model: Path, companions: Companions, start: StartEngine
) -> Engine:
    """Starts an engine for a hub id, whose artifacts have no key. Single graphs are still restored and saved."""
    backend = artifact_backend(state.config, plan, model, companions)
    cache = backend.neff_cache(plan, open_store(state), None)
    if cache is not None:
        backend.prepare()
    with _shared_graphs(state, cache), explained_start_failure(state.lifecycle):
        return start(backend.cached(plan))


def open_store(state: ServingState) -> ArtifactStore:
    """:raises SettingError: the artifact store or the signing key is not valid."""
    config = state.config
    assert config.artifact_store is not None, "called without a store"
    key = signer(config.artifact_signing_key or "", setting=config.setting("artifact_signing_key"))
    return ArtifactStore.open(config.artifact_store, key, config.setting("artifact_store"))


def _shared_graphs(state: ServingState, cache: NeffCache | None) -> AbstractContextManager[None]:
    """Compile within it.

    :param cache: None if there is none: the owner has configured another cache, or the line has none.
    """
    if cache is None:
        return nullcontext()
    state.lifecycle.stage("bring compiled graphs")
    return cache.shared()


def _machine(state: ServingState) -> dict[str, str]:
    """This machine, for leases and manifests. A compile without devices is not on the instance that it is for."""
    instance = None if compiles_only(state.config.neuron_env) else this_machine(state.config)
    return {"instance": instance.name if instance else platform.machine(), "host": platform.node()}
