"""What differs between the lines: what a key is of, where the engine compiles to, and how it is led to artifacts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from handler.artifacts.compile_caches.neff_cache import NeffCache, environment
from handler.artifacts.compile_caches.neff_layout import NATIVE
from handler.artifacts.compile_caches.neff_store import NeffStore
from handler.artifacts.compile_caches.torch_compile_cache import TorchCompileCache
from handler.artifacts.identity.artifact_key import ArtifactKey, CompileTarget, KeyInputs, graph_key, weights_key
from handler.artifacts.identity.checkpoint_identity import identify
from handler.artifacts.identity.companion_identity import identify_companions
from handler.artifacts.identity.software_versions import cpu_features, cpu_versions, neuron_versions
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.model.companions import Companions
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.current_machine import this_machine
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.storage_errors import NotFound

CACHE_URL, CACHE_ROOT = "NEURON_COMPILE_CACHE_URL", "VLLM_CACHE_ROOT"
FORBID = "VLLM_NEURON_DISABLE_WARMUP_COMPILE"


class ArtifactBackend(Protocol):
    """One line's way with artifacts."""

    def key_inputs(self, plan: EnginePlan) -> KeyInputs: ...

    def keys(self, inputs: KeyInputs) -> Sequence[ArtifactKey]: ...

    def tier(self, plan: EnginePlan, store: ArtifactStore, key: ArtifactKey | None) -> NeffCache | None:
        """The cache of single graphs beneath; None where there is none of ours."""
        ...

    def prepare(self) -> None:
        """Before a compile: nothing may be where it is made that it has not made."""
        ...

    def to_compile(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        """The plan of an engine that compiles into `directory`, or into what `collect` takes from."""
        ...

    def cached(self, plan: EnginePlan) -> EnginePlan:
        """The plan of an engine that has no entry, but keeps single graphs."""
        ...

    def collect(self, directory: Path) -> None:
        """After the engine has been started and warmed up."""
        ...

    def to_load(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        """The plan of an engine that finds restored artifacts."""
        ...


def artifact_backend(config: EndpointConfig, plan: EnginePlan, model: Path, companions: Companions) -> ArtifactBackend:
    if plan.line == "cpu":
        return CpuBackend(config, model, companions)
    if plan.line.startswith("native"):
        return NativeBackend(config, model, companions)
    return NxdiBackend(config, model, companions)


@dataclass(frozen=True, slots=True)
class NxdiBackend:
    """NxD Inference: a directory that NEURON_COMPILED_ARTIFACTS names, filled by the plugin where it is empty."""

    config: EndpointConfig
    model: Path
    companions: Companions

    def key_inputs(self, plan: EnginePlan) -> KeyInputs:
        return _neuron_inputs(self.config, plan, self.model, self.companions)

    def keys(self, inputs: KeyInputs) -> Sequence[ArtifactKey]:
        graph = graph_key(inputs)
        return (graph, weights_key(inputs)) if _sharded(inputs.plan) else (graph,)

    def tier(self, plan: EnginePlan, store: ArtifactStore, key: ArtifactKey | None) -> NeffCache | None:
        given = _variable(plan, CACHE_URL)
        if given and "://" in given:
            return None  # the compiler keeps its cache in S3 by itself
        root = Path(given) if given else self.config.scratch / "neff-cache"
        return NeffCache(root, NeffStore(store.objects, store.signer), neuron_versions().get("neuronx-cc"))

    def prepare(self) -> None:
        return None

    def to_compile(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        cached = self.cached(plan)
        return replace(cached, env={**cached.env, "NEURON_COMPILED_ARTIFACTS": str(directory)})

    def cached(self, plan: EnginePlan) -> EnginePlan:
        """With the compiler's cache and work directory where they are on every machine, unless they were given."""
        ours = environment(self.config.scratch / "neff-cache")
        return replace(plan, env={**{name: os.environ.get(name) or ours[name] for name in ours}, **plan.env})

    def collect(self, directory: Path) -> None:
        return None

    def to_load(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        return self.to_compile(plan, directory)


@dataclass(frozen=True, slots=True)
class NativeBackend:
    """The native plugin: a directory a graph below VLLM_CACHE_ROOT, at a fixed path below the scratch directory."""

    config: EndpointConfig
    model: Path
    companions: Companions

    @property
    def root(self) -> Path:
        return self.config.scratch / "native-cache"

    @property
    def cache(self) -> Path:
        return NATIVE.directory(self.root, "")

    def key_inputs(self, plan: EnginePlan) -> KeyInputs:
        return _neuron_inputs(self.config, plan, self.model, self.companions)

    def keys(self, inputs: KeyInputs) -> Sequence[ArtifactKey]:
        return (graph_key(inputs),)

    def tier(self, plan: EnginePlan, store: ArtifactStore, key: ArtifactKey | None) -> NeffCache | None:
        """Of this key alone: which of many keys' graphs an engine has used cannot be told, and an entry is exact."""
        if key is None:
            return None
        return NeffCache(self.root, NeffStore(store.objects, store.signer, NATIVE), key.digest[:32])

    def prepare(self) -> None:
        shutil.rmtree(self.cache, ignore_errors=True)

    def to_compile(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        return replace(plan, env={**plan.env, CACHE_ROOT: str(self.root)})

    def cached(self, plan: EnginePlan) -> EnginePlan:
        return plan

    def collect(self, directory: Path) -> None:
        """:raises NotFound: nothing was compiled."""
        if not self.cache.is_dir():
            raise NotFound(f"A compiled graph below {self.cache}")
        finished = [module for module in self.cache.iterdir() if (module / NATIVE.done).is_file()]
        if not finished:
            raise NotFound(f"A compiled graph below {self.cache}")
        for module in finished:
            shutil.copytree(module, directory / module.name)

    def to_load(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        self.prepare()
        shutil.copytree(directory, self.cache)
        found = self.to_compile(plan, directory)
        # Where a miss must fail, a graph that the entry lacks must not be compiled in silence either.
        return replace(found, env={**found.env, FORBID: "1"}) if self.config.on_miss == "fail" else found


@dataclass(frozen=True, slots=True)
class CpuBackend:
    """vLLM on a CPU: torch.compile's caches, at fixed paths below the scratch directory."""

    config: EndpointConfig
    model: Path
    companions: Companions

    @property
    def cache(self) -> TorchCompileCache:
        return TorchCompileCache(self.config.scratch / "torch-compile")

    def key_inputs(self, plan: EnginePlan) -> KeyInputs:
        checkpoint = identify(DirectoryObjects(self.model), content=False)
        found = identify_companions(self.companions, self.config.scratch, content=False)
        target = CompileTarget("cpu", None, tuple(cpu_features()))
        return KeyInputs(plan, cpu_versions(), target, checkpoint, os.environ, found.adapters, found.draft)

    def keys(self, inputs: KeyInputs) -> Sequence[ArtifactKey]:
        return (graph_key(inputs),)

    def tier(self, plan: EnginePlan, store: ArtifactStore, key: ArtifactKey | None) -> NeffCache | None:
        return None

    def prepare(self) -> None:
        self.cache.clear()

    def to_compile(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        return replace(plan, env={**plan.env, **self.cache.environment()})

    def cached(self, plan: EnginePlan) -> EnginePlan:
        return plan

    def collect(self, directory: Path) -> None:
        self.cache.collect(directory)

    def to_load(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        self.cache.bring(directory)
        return replace(plan, env={**plan.env, **self.cache.environment()})


def _neuron_inputs(config: EndpointConfig, plan: EnginePlan, model: Path, companions: Companions) -> KeyInputs:
    instance = this_machine(config)
    target = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") or (instance.platform if instance else "")
    if not target:
        fix = "Set ENDPOINT_INSTANCE, ml.trn2.48xlarge for one."
        raise SettingError("ENDPOINT_ARTIFACT_STORE", "it is not known for which platform to compile", fix)
    lnc = plan.env.get("NEURON_LOGICAL_NC_CONFIG") or (instance.lnc[0] if instance else 1)
    content = _sharded(plan)
    checkpoint = identify(DirectoryObjects(model), content=content)
    found = identify_companions(companions, config.scratch, content=content)
    versions, platform = neuron_versions(), CompileTarget(target, int(lnc))
    return KeyInputs(plan, versions, platform, checkpoint, os.environ, found.adapters, found.draft, found.quantized)


def _sharded(plan: EnginePlan) -> bool:
    additional = plan.engine_args.get("additional_config")
    override = additional.get("override_neuron_config") if isinstance(additional, dict) else None
    return isinstance(override, dict) and override.get("save_sharded_checkpoint") is True


def _variable(plan: EnginePlan, name: str) -> str | None:
    return plan.env.get(name) or os.environ.get(name) or None
