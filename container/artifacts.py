"""The way of a start to an engine by compiled artifacts: restored from the store, or compiled here and kept there.

The Neuron plugin compiles when it loads a model, and vLLM on a CPU when it first runs one: in both, to compile is to
start the engine. So an engine that was started to compile goes on to serve.
"""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from container.service import Service
from handler.artifacts.acquire import Acquisition
from handler.artifacts.acquire_options import Compilation, OnMiss, Options
from handler.artifacts.checkpoint_identity import identify
from handler.artifacts.compile_errors import CompileFailed
from handler.artifacts.directory_objects import DirectoryObjects
from handler.artifacts.errors import NotFound
from handler.artifacts.key import Key, KeyInputs, Target, graph_key, weights_key
from handler.artifacts.manifest import Manifest
from handler.artifacts.model_paths import ModelPaths
from handler.artifacts.progress import Progress
from handler.artifacts.restore import restore, source_of
from handler.artifacts.signature import Signer, signer
from handler.artifacts.store import Store
from handler.artifacts.torch_compile_cache import TorchCompileCache
from handler.artifacts.versions import cpu_features, cpu_versions, neuron_versions
from handler.engine.engine import Engine
from handler.errors import EndpointError, SettingError
from handler.json_value import Json
from handler.neuron.machine import this_machine
from handler.neuron.plan import EnginePlan

logger = logging.getLogger(__name__)
# Seconds between two polls of a waiter, and how many at least go into a lease.
POLL = 10.0
POLLS = 4
StartEngine = Callable[[EnginePlan], Engine]


class Ground(Protocol):
    """What differs between the lines: what a key is of, and how the engine is led to artifacts."""

    def key_inputs(self, plan: EnginePlan) -> KeyInputs: ...

    def keys(self, inputs: KeyInputs) -> Sequence[Key]: ...

    def to_compile(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        """The plan of an engine that compiles into `directory`, or into what `collect` takes from."""
        ...

    def collect(self, directory: Path) -> None:
        """After the engine has been started and warmed up."""
        ...

    def to_load(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        """The plan of an engine that finds restored artifacts."""
        ...


@dataclass(frozen=True, slots=True)
class NeuronGround:
    """NxD Inference: a directory that NEURON_COMPILED_ARTIFACTS names, filled by the plugin where it is empty."""

    service: Service
    model: Path

    def key_inputs(self, plan: EnginePlan) -> KeyInputs:
        config = self.service.config
        instance = this_machine(config)
        target = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") or (instance.platform if instance else "")
        if not target:
            mend = "Set ENDPOINT_INSTANCE, ml.trn2.48xlarge for one."
            raise SettingError("ENDPOINT_ARTIFACT_STORE", "it is not known for which platform to compile", mend)
        lnc = plan.env.get("NEURON_LOGICAL_NC_CONFIG") or (instance.lnc[0] if instance else 1)
        checkpoint = identify(DirectoryObjects(self.model), content=_sharded(plan))
        return KeyInputs(plan, neuron_versions(), Target(target, int(lnc)), checkpoint, os.environ)

    def keys(self, inputs: KeyInputs) -> Sequence[Key]:
        graph = graph_key(inputs)
        return (graph, weights_key(inputs)) if _sharded(inputs.plan) else (graph,)

    def to_compile(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        return replace(plan, env={**plan.env, "NEURON_COMPILED_ARTIFACTS": str(directory)})

    def collect(self, directory: Path) -> None:
        return None

    def to_load(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        return self.to_compile(plan, directory)


@dataclass(frozen=True, slots=True)
class CpuGround:
    """vLLM on a CPU: torch.compile's caches, at fixed paths below the scratch directory."""

    service: Service
    model: Path

    @property
    def cache(self) -> TorchCompileCache:
        return TorchCompileCache(self.service.config.scratch / "torch-compile")

    def key_inputs(self, plan: EnginePlan) -> KeyInputs:
        checkpoint = identify(DirectoryObjects(self.model), content=False)
        return KeyInputs(plan, cpu_versions(), Target("cpu", None, tuple(cpu_features())), checkpoint, os.environ)

    def keys(self, inputs: KeyInputs) -> Sequence[Key]:
        return (graph_key(inputs),)

    def to_compile(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        self.cache.clear()
        return replace(plan, env={**plan.env, **self.cache.environment()})

    def collect(self, directory: Path) -> None:
        self.cache.collect(directory)

    def to_load(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        self.cache.bring(directory)
        return replace(plan, env={**plan.env, **self.cache.environment()})


def engine_by_artifacts(service: Service, plan: EnginePlan, model: Path, start: StartEngine) -> Engine:
    """A warm engine, by way of the configured store.

    :param start: starts an engine with a plan and warms it up.
    :raises EndpointError: a store, a restore or a compile that failed, each saying why and what mends it.
    """
    config, lifecycle = service.config, service.lifecycle
    assert config.artifact_store is not None, "called without a store"
    ground: Ground = CpuGround(service, model) if plan.line == "cpu" else NeuronGround(service, model)
    lifecycle.stage("find artifacts")
    keys = ground.keys(ground.key_inputs(plan))
    store = Store.open(config.artifact_store, _signer(service))
    target = config.scratch / "artifacts" / keys[0].digest[:32]
    target.parent.mkdir(parents=True, exist_ok=True)
    started: list[Engine] = []

    def compile(wanted: Compilation) -> None:
        lifecycle.label("compile")
        try:
            engine = start(ground.to_compile(plan, wanted.directory))
        except EndpointError:
            raise
        except Exception as error:
            raise CompileFailed(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}") from error
        started.append(engine)
        ground.collect(wanted.directory)
        lifecycle.label("")
        lifecycle.stage("publish artifacts")

    def bring(manifests: Sequence[Manifest], directory: Path) -> None:
        lifecycle.stage("restore artifacts")

        def progress(now: Progress) -> None:
            lifecycle.progress(now.done, now.total)

        restore(manifests, source_of(store), directory, paths=ModelPaths(model=str(model)), progress=progress)
        lifecycle.progress(0, 0)

    def listener(event: Mapping[str, Json]) -> None:
        if event["event"] == "artifact_wait":
            lifecycle.stage("wait for another instance's artifacts")
        logger.info("%s", dict(event))

    poll = min(POLL, config.artifact_lease / POLLS)
    options = Options(OnMiss(config.on_miss), config.artifact_lease, poll, _machine(service))
    deadline = time.monotonic() + config.artifact_deadline
    search = Acquisition(store, keys, target, bring, compile, deadline, options=options, listener=listener)
    try:
        acquired = search.run()
    except NotFound:
        if not started:
            raise
        logger.warning("the engine compiled nothing that could be kept")
        return started[0]
    except BaseException:
        for engine in started:
            engine.stop()
        raise
    return started[0] if started else start(ground.to_load(plan, acquired.path))


def _sharded(plan: EnginePlan) -> bool:
    additional = plan.engine_args.get("additional_config")
    override = additional.get("override_neuron_config") if isinstance(additional, dict) else None
    return isinstance(override, dict) and override.get("save_sharded_checkpoint") is True


def _signer(service: Service) -> Signer | None:
    value = service.config.artifact_signing_key
    return signer(value, os.environ, "ENDPOINT_ARTIFACT_SIGNING_KEY") if value else None


def _machine(service: Service) -> dict[str, str]:
    instance = this_machine(service.config)
    return {"instance": instance.name if instance else platform.machine(), "host": platform.node()}
