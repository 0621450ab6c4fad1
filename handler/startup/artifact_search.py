"""The way of a start to an engine by compiled artifacts: restored from the store, or compiled here and kept there.

The Neuron plugin compiles when it loads a model, and vLLM on a CPU when it first runs one: in both, to compile is to
start the engine. So an engine that was started to compile goes on to serve.
"""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from handler.artifacts.lease.acquisition import Acquisition
from handler.artifacts.lease.acquisition_options import AcquisitionOptions, Compilation, OnMiss
from handler.artifacts.lease.clock import RealClock
from handler.artifacts.lease.compile_failure import compile_failure
from handler.artifacts.lease.negative_entries import NegativeEntries
from handler.artifacts.restore.model_paths import ModelPaths
from handler.artifacts.restore.restore import restore, source_of
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest import Manifest
from handler.artifacts.store.manifest_signature import Signer, signer
from handler.engine.engine import Engine
from handler.engine.vllm_api.core.core_exits import core_exits
from handler.errors import EndpointError
from handler.json_value import Json
from handler.model.companions import Companions
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.current_machine import this_machine
from handler.neuron.lines.lora import adapter_file
from handler.startup.artifact_backends import ArtifactBackend, artifact_backend
from handler.startup.neff_cache_tier import neff_tier
from handler.startup.output_tail import output_tail
from handler.startup.progress_display import shown
from handler.startup.serving_state import ServingState
from handler.startup.start_errors import StartEngine, with_reason

logger = logging.getLogger(__name__)
# Seconds between two polls of a waiter, and how many at least go into a lease.
POLL = 10.0
POLLS = 4


def engine_by_artifacts(
    state: ServingState, plan: EnginePlan, model: Path, companions: Companions, start: StartEngine
) -> Engine:
    """A warm engine, by way of the configured store.

    :param start: starts an engine with a plan and warms it up.
    :raises EndpointError: a store, a restore or a compile that failed, each saying why and what fixes it.
    """
    config = state.config
    ground = artifact_backend(state.config, plan, model, companions)
    state.lifecycle.stage("find artifacts")
    keys = ground.keys(ground.key_inputs(plan))
    store = open_store(state)
    target = config.scratch / "artifacts" / keys[0].digest[:32]
    paths = ModelPaths(str(model), companions.draft, companions.quantized, adapter_file(config), companions.adapters)
    with ExitStack() as after:
        deadline = time.monotonic() + config.artifact_deadline
        making = _Making(state, ground, plan, store, paths, start, after, deadline)
        after.callback(making.wait_ended)
        poll = min(POLL, config.artifact_lease / POLLS)
        options = AcquisitionOptions(OnMiss(config.on_miss), config.artifact_lease, poll, _machine(state))
        failures = NegativeEntries(store.objects, RealClock(), environ=os.environ)
        search = Acquisition(
            store,
            keys,
            target,
            making.bring,
            making.compile,
            deadline,
            options=options,
            failures=failures,
            listener=making.hear,
        )
        try:
            acquired = search.run()
        except Exception as error:
            if making.engine is None:
                raise
            # It is warm and serves: a full disk, or nothing to keep, costs the next start a compile, not this one.
            logger.warning("what was compiled here serves, but is not kept: %s", error)
            return making.engine
        except BaseException:
            if making.engine is not None:
                making.engine.stop()
            raise
    return making.engine or with_reason(start)(ground.to_load(plan, acquired.path))


def engine_over_tier(
    state: ServingState, plan: EnginePlan, model: Path, companions: Companions, start: StartEngine
) -> Engine:
    """An engine of a model that has no key, a hub id's: single graphs are brought and saved all the same."""
    ground = artifact_backend(state.config, plan, model, companions)
    cache = ground.tier(plan, open_store(state), None)
    with neff_tier(cache, state.lifecycle):
        return with_reason(start)(ground.cached(plan))


def open_store(state: ServingState) -> ArtifactStore:
    """:raises SettingError: the store or the key for signatures cannot be what is configured."""
    config = state.config
    assert config.artifact_store is not None, "called without a store"
    return ArtifactStore.open(config.artifact_store, _signer(state))


class _Making:
    """What `Acquisition` calls back: the restore, the compile, and what is reported of them.

    :param after: what is to be done when the search is over, and others need not wait for it any more.
    :param deadline: monotonic seconds after which a restore gives up.
    """

    def __init__(
        self,
        state: ServingState,
        ground: ArtifactBackend,
        plan: EnginePlan,
        store: ArtifactStore,
        paths: ModelPaths,
        start: StartEngine,
        after: ExitStack,
        deadline: float,
    ) -> None:
        self._state, self._ground, self._plan, self._store = state, ground, plan, store
        self._paths, self._start, self._after, self._deadline = paths, start, after, deadline
        self._waits: float | None = None
        self.engine: Engine | None = None

    def hear(self, event: Mapping[str, Json]) -> None:
        self._state.artifacts.hear(event)
        if event.get("event") == "artifact_wait":
            if self._waits is None:
                self._waits = time.monotonic()
                self._state.lifecycle.stage("wait for another instance's artifacts")
            machine = event.get("machine")
            holder = f"{machine} compiles them" if machine else "another instance is to publish them"
            self._state.lifecycle.progress(0, 0, waiting=holder)

    def wait_ended(self) -> None:
        if self._waits is not None:
            self._state.artifacts.waited(time.monotonic() - self._waits)
            self._waits = None

    def bring(self, manifests: Sequence[Manifest], directory: Path) -> None:
        self.wait_ended()
        self._state.lifecycle.stage("restore artifacts")
        with shown(self._state.lifecycle, "restore artifacts") as progress:
            source, paths = source_of(self._store), self._paths
            done = restore(manifests, source, directory, paths=paths, progress=progress, deadline=self._deadline)
        self._state.artifacts.restored(done)

    def compile(self, wanted: Compilation) -> None:
        self.wait_ended()
        lifecycle, ground = self._state.lifecycle, self._ground
        ground.prepare()
        self._after.enter_context(neff_tier(ground.tier(self._plan, self._store, wanted.missing[0]), lifecycle))
        began = time.monotonic()
        lifecycle.label("compile")
        try:
            with output_tail() as output:
                self.engine = self._start(ground.to_compile(self._plan, wanted.directory))
        except EndpointError:
            raise
        except Exception as error:
            raise compile_failure(error, core_exits(error), output.text()) from error
        finally:
            lifecycle.label("")
            self._state.artifacts.compiled(time.monotonic() - began)
        ground.collect(wanted.directory)
        lifecycle.stage("publish artifacts")


def _signer(state: ServingState) -> Signer | None:
    value = state.config.artifact_signing_key
    return signer(value, os.environ, "ENDPOINT_ARTIFACT_SIGNING_KEY") if value else None


def _machine(state: ServingState) -> dict[str, str]:
    instance = this_machine(state.config)
    return {"instance": instance.name if instance else platform.machine(), "host": platform.node()}
