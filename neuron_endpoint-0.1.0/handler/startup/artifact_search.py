"""Starts an engine with compiled artifacts: restored from the store, or compiled here and saved there.

The Neuron plugin compiles when it loads a model, and vLLM on a CPU when it first runs one. In both cases, compiling
means starting the engine, so an engine that was started to compile goes on to serve.
"""

from __future__ import annotations

import logging
import os
import platform
import time
from contextlib import ExitStack
from pathlib import Path

from handler.artifacts.lease.acquisition import Acquisition
from handler.artifacts.lease.acquisition_options import AcquisitionOptions, OnMiss
from handler.artifacts.lease.clock import RealClock
from handler.artifacts.lease.negative_entries import NegativeEntries
from handler.artifacts.restore.model_paths import ModelPaths
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest_signature import signer
from handler.engine.engine import Engine
from handler.model.companions import Companions
from handler.neuron.engine_plan import EnginePlan, compiles_only
from handler.neuron.hardware.current_machine import this_machine
from handler.neuron.lines.lora import adapter_file
from handler.startup.acquisition_callbacks import AcquisitionCallbacks
from handler.startup.artifact_backends import artifact_backend
from handler.startup.serving_state import ServingState
from handler.startup.shared_neff_cache import shared_neff_cache
from handler.startup.start_diagnosis import StartEngine, explained_start_failure

logger = logging.getLogger(__name__)
# Seconds between two polls while another instance compiles, and the least number of polls within a lease.
POLL = 10.0
POLLS = 4


def engine_by_artifacts(
    state: ServingState, plan: EnginePlan, model: Path, companions: Companions, start: StartEngine
) -> Engine | None:
    """Starts an engine with artifacts from the configured store, and warms it up.

    :param start: starts an engine with a plan and warms it up.
    :returns: None if this machine only compiles, and the store has everything.
    :raises EndpointError: the store, the restore or the compile failed. The message has the reason and the fix.
    """
    config = state.config
    backend = artifact_backend(state.config, plan, model, companions)
    state.lifecycle.stage("find artifacts")
    keys = backend.keys(backend.key_inputs(plan))
    store = open_store(state)
    target = config.scratch / "artifacts" / keys[0].digest[:32]
    paths = ModelPaths(str(model), companions.draft, companions.quantized, adapter_file(config))
    with ExitStack() as after:
        deadline = time.monotonic() + config.artifact_deadline
        callbacks = AcquisitionCallbacks(state, backend, plan, store, paths, start, after, deadline)
        after.callback(callbacks.wait_ended)
        poll = min(POLL, config.artifact_lease / POLLS)
        options = AcquisitionOptions(OnMiss(config.on_miss), config.artifact_lease, poll, _machine(state))
        failures = NegativeEntries(store.objects, RealClock(), environ=os.environ, signer=store.signer)
        search = Acquisition(
            store,
            keys,
            target,
            callbacks.restore,
            callbacks.compile,
            deadline,
            options=options,
            failures=failures,
            listener=callbacks.record_event,
        )
        try:
            acquired = search.run()
        except Exception as error:
            if callbacks.engine is None:
                raise
            # The engine is warm and serves. The next start must compile again.
            logger.warning("the engine serves what it compiled, but the artifacts could not be saved: %s", error)
            return callbacks.engine
        except BaseException:
            if callbacks.engine is not None:
                callbacks.engine.stop()
            raise
    if callbacks.engine is not None:
        return callbacks.engine
    if compiles_only(plan.env):
        return None
    with explained_start_failure():
        return start(backend.to_load(plan, acquired.path))


def engine_with_neff_cache(
    state: ServingState, plan: EnginePlan, model: Path, companions: Companions, start: StartEngine
) -> Engine:
    """Starts an engine for a hub id, whose artifacts have no key. Single graphs are still restored and saved."""
    backend = artifact_backend(state.config, plan, model, companions)
    cache = backend.neff_cache(plan, open_store(state), None)
    with shared_neff_cache(cache, state.lifecycle), explained_start_failure():
        return start(backend.cached(plan))


def open_store(state: ServingState) -> ArtifactStore:
    """Opens the configured artifact store.

    :raises SettingError: the store or the signing key is not valid.
    """
    config = state.config
    assert config.artifact_store is not None, "called without a store"
    return ArtifactStore.open(config.artifact_store, signer(config.artifact_signing_key or ""))


def _machine(state: ServingState) -> dict[str, str]:
    """This machine, for leases and manifests. A compile without devices is not on the instance that it is for."""
    instance = None if compiles_only(state.config.neuron_env) else this_machine(state.config)
    return {"instance": instance.name if instance else platform.machine(), "host": platform.node()}
