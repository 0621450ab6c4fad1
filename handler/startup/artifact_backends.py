"""How each line compiles and loads artifacts: their keys, where they are compiled, how an engine finds them.

Without a store, what NxD Inference compiles is kept in the scratch directory. By itself its loader compiles beside the
model, which is read-only on SageMaker, at every start (vllm-project/vllm-neuron,
worker/neuronx_distributed_model_loader.py; the fork's too). It also loads any directory without a check, so the
directory is named by the artifacts' key, and a directory that a killed compile left is removed.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from handler.artifacts.compile_caches.native_cache import NativeCache
from handler.artifacts.compile_caches.neff_cache import NeffCache, environment
from handler.artifacts.compile_caches.neff_store import NATIVE, NeffStore
from handler.artifacts.compile_caches.torch_compile_cache import TorchCompileCache
from handler.artifacts.external.external_artifacts import describe
from handler.artifacts.identity.artifact_key import ArtifactKey, CompileTarget, KeyInputs, graph_key, weights_key
from handler.artifacts.identity.canonical_json import digest
from handler.artifacts.identity.checkpoint_identity import has_weights, identify, identify_at, identify_companions
from handler.artifacts.identity.software_versions import cpu_features, cpu_versions, neuron_versions
from handler.artifacts.lease.acquisition import OnMiss
from handler.artifacts.restore.model_paths import CONFIG, ModelPaths
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.publication import MADE_WEIGHTS
from handler.config.dialects.vllm_names import MULTIMODAL_KEYS
from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.json_value import mapping
from handler.model.companions import Companions
from handler.model.model_source import Model
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.current_machine import this_machine
from handler.neuron.lines.fork import SUFFIX
from handler.neuron.lines.lora import adapter_file
from handler.neuron.planning.adapter_findings import LORA_FILE, listed_adapters
from handler.processes import current_environment
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.transfer.download_directory import locked, mark_written, written_here

logger = logging.getLogger(__name__)
CACHE_URL = "NEURON_COMPILE_CACHE_URL"
# With these, a graph that the cache does not have is an error. Version 0.21 reads the second name of the first one.
FORBID = ("NEURON_LIBTORCH_ASSERT_CACHE_HIT", "VLLM_NEURON_ASSERT_CACHE_HIT", "VLLM_NEURON_DISABLE_WARMUP_COMPILE")
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class ArtifactBackend:
    """How one line compiles and loads artifacts. Each line overrides the defaults of this class."""

    config: EndpointConfig
    model: Path
    companions: Companions

    @property
    def configured_paths(self) -> ModelPaths:
        """The paths of the model and its companions on this machine."""
        companions = self.companions
        named = self.config.neuron_config.get(LORA_FILE)  # the owner's own file
        adapters = adapter_file(self.config) if self.config.lora_modules else named if isinstance(named, str) else None
        return ModelPaths(str(self.model), companions.draft, companions.quantized, adapters)

    def paths(self, plan: EnginePlan, directory: Path) -> ModelPaths:
        """The paths that artifacts of another place must name once they are in `directory`."""
        return self.configured_paths

    def keeps_weights(self, plan: EnginePlan) -> bool:
        """Whether the artifacts contain weights, which have a key and an entry of their own."""
        return _sharded(plan)

    def key_inputs(self, plan: EnginePlan) -> KeyInputs:
        """Everything that determines the artifacts of a plan.

        :raises SettingError: the platform to compile for is unknown.
        """
        instance = this_machine(self.config)
        target = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") or (instance.platform if instance else "")
        if not target and self.config.artifact_store:
            fix = "Set ENDPOINT_INSTANCE, for example to ml.trn2.48xlarge."
            raise SettingError("ENDPOINT_ARTIFACT_STORE", "the platform to compile for is unknown", fix)
        lnc = plan.env.get("NEURON_LOGICAL_NC_CONFIG") or (instance.lnc[0] if instance else 1)
        content = self.keeps_weights(plan)
        checkpoint = identify_at(str(self.model), "ENDPOINT_MODEL", content=content)
        named = replace(self.companions, adapters=self.companions.adapters or listed_adapters(self.config))
        companions = identify_companions(named, content=content)
        versions, platform, environ = neuron_versions(), CompileTarget(target, int(lnc)), current_environment()
        return KeyInputs(plan, versions, platform, checkpoint, environ, *companions)

    def keys(self, inputs: KeyInputs) -> Sequence[ArtifactKey]:
        """The keys of the artifacts in the store: the graph's, and the weights' if they are stored apart."""
        return (graph_key(inputs),)

    def on_miss(self, plan: EnginePlan) -> OnMiss:
        return OnMiss(self.config.on_miss)

    def neff_cache(self, plan: EnginePlan, store: ArtifactStore, key: ArtifactKey | None) -> NeffCache | None:
        """The cache of single graphs that a compile uses. None if this software manages none."""
        return None

    def prepare(self) -> None:
        """Call before a compile. Removes old files from where the compile writes."""

    def to_compile(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        """The plan of an engine that compiles, either into `directory` or into a place from which `collect` copies."""
        raise NotImplementedError

    def cached(self, plan: EnginePlan) -> EnginePlan:
        """The plan of an engine without an artifact key, which uses only the cache of single graphs."""
        return plan

    def collect(self, directory: Path) -> None:
        """Copies what was compiled to `directory`. Call after the warm-up.

        :raises NotFound: nothing was compiled.
        """

    def to_load(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        """The plan of an engine that loads the artifacts that were restored to `directory`."""
        return self.to_compile(plan, directory)


def artifact_backend(config: EndpointConfig, plan: EnginePlan, model: Path, companions: Companions) -> ArtifactBackend:
    if plan.line == "cpu":
        return CpuBackend(config, model, companions)
    if plan.line.startswith("native"):
        return NativeBackend(config, model, companions)
    return NxdiBackend(config, model, companions)


class NxdiBackend(ArtifactBackend):
    """NxD Inference: the plugin loads the directory in NEURON_COMPILED_ARTIFACTS, or compiles into an empty one.

    When it compiles a quantized model, it writes the quantized weights, and each later load reads them. They are made
    inside the artifacts, so that they are published and restored with them, unless they were configured and are there.
    """

    def keys(self, inputs: KeyInputs) -> Sequence[ArtifactKey]:
        graph = graph_key(inputs)
        return (graph, weights_key(inputs)) if self.keeps_weights(inputs.plan) else (graph,)

    def keeps_weights(self, plan: EnginePlan) -> bool:
        return _sharded(plan) or self._makes_weights(plan)

    def _makes_weights(self, plan: EnginePlan) -> bool:
        configured = self.companions.quantized
        return bool(plan.nxd_keys.get("quantized")) and configured is not None and not has_weights(Path(configured))

    def _made_weights(self, plan: EnginePlan, directory: Path) -> Path | None:
        """Where the compile writes quantized weights. None: where it is configured. Shards make them superfluous."""
        if not self._makes_weights(plan):
            return None
        return self._aside if _sharded(plan) else directory / MADE_WEIGHTS

    @property
    def _aside(self) -> Path:
        return self.config.scratch / "quantized"

    def paths(self, plan: EnginePlan, directory: Path) -> ModelPaths:
        paths, made = self.configured_paths, self._made_weights(plan, directory)
        return paths if made is None else replace(paths, quantized_checkpoints=str(made))

    def neff_cache(self, plan: EnginePlan, store: ArtifactStore, key: ArtifactKey | None) -> NeffCache | None:
        root = self.cached(plan).env[CACHE_URL]
        if "://" in root:
            return None  # the compiler itself keeps its cache in S3
        return NeffCache(Path(root), NeffStore(store.objects, store.signer), neuron_versions().get("neuronx-cc"))

    def prepare(self) -> None:
        """Removes graphs of an earlier boot, some of which may be damaged. They would go to the store as they are.

        And quantized weights of another model: NxD Inference adds to what is there.
        """
        shutil.rmtree(self._aside, ignore_errors=True)
        cache = self.config.scratch / "neff-cache"
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache.with_name(f".{cache.name}.lock"), lambda: None):
            if not written_here(cache):
                shutil.rmtree(cache, ignore_errors=True)
                cache.mkdir(exist_ok=True)
                mark_written(cache)

    def to_compile(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        cached, made = self.cached(plan), self._made_weights(plan, directory)
        if made is not None:
            made.mkdir(parents=True, exist_ok=True)  # NxD Inference pickles them where there is no directory
            cached = Companions(moved={str(self.config.quantized_checkpoints_path): str(made)}).rewritten(cached)
        return replace(cached, env={**cached.env, "NEURON_COMPILED_ARTIFACTS": str(directory)})

    def cached(self, plan: EnginePlan) -> EnginePlan:
        """Sets the compiler's cache and work directory to the same paths everywhere, unless they are configured."""
        defaults = environment(self.config.scratch / "neff-cache")
        return replace(plan, env={**{name: os.environ.get(name) or defaults[name] for name in defaults}, **plan.env})


class CacheBackend(ArtifactBackend):
    """A line whose artifacts are the caches that an engine fills, at a fixed path in the scratch directory."""

    @property
    def cache(self) -> NativeCache | TorchCompileCache:
        raise NotImplementedError

    def prepare(self) -> None:
        self.cache.clear()

    def to_compile(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        return replace(plan, env={**plan.env, **self.cache.environment()})

    def collect(self, directory: Path) -> None:
        self.cache.collect(directory)

    def to_load(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        self.cache.bring(directory)
        return self.to_compile(plan, directory)


class NativeBackend(CacheBackend):
    """The native plugin: its graphs and traces in VLLM_CACHE_ROOT."""

    @property
    def cache(self) -> NativeCache:
        return NativeCache(self.config.scratch / "native-cache")

    def on_miss(self, plan: EnginePlan) -> OnMiss:
        """With a variable of FORBID a compile fails, and its failure would be recorded for instances that may compile.

        The variable is not part of the key, so they have the same one.
        """
        forbidden = any(plan.env.get(name, "").strip() not in ("", "0") for name in FORBID)
        chosen = super().on_miss(plan)
        return OnMiss.FAIL if forbidden and chosen is OnMiss.COMPILE else chosen

    def neff_cache(self, plan: EnginePlan, store: ArtifactStore, key: ArtifactKey | None) -> NeffCache | None:
        """A cache for this key only, because it is unknown which graphs of a shared cache an engine has used."""
        if key is None:
            return None
        return NeffCache(self.cache.root, NeffStore(store.objects, store.signer, NATIVE), key.digest[:32])

    def to_load(self, plan: EnginePlan, directory: Path) -> EnginePlan:
        loading = super().to_load(plan, directory)
        if self.config.on_miss == "compile":
            return loading
        # If a miss must fail, or wait, a graph that the entry does not have must not be compiled silently.
        return replace(loading, env={**loading.env, **dict.fromkeys(FORBID, "1")})


class CpuBackend(CacheBackend):
    """vLLM on a CPU: torch.compile's caches."""

    @property
    def cache(self) -> TorchCompileCache:
        return TorchCompileCache(self.config.scratch / "torch-compile")

    def key_inputs(self, plan: EnginePlan) -> KeyInputs:
        checkpoint = identify(DirectoryObjects(self.model), content=False)
        adapters, draft, _ = identify_companions(self.companions, content=False)
        target = CompileTarget("cpu", None, tuple(cpu_features()))
        return KeyInputs(plan, cpu_versions(), target, checkpoint, current_environment(), adapters, draft)


def _sharded(plan: EnginePlan) -> bool:
    """Whether the plugin saves shards, of the model or of one part of a multimodal model."""
    override = plan.section("override_neuron_config")
    parts = (override, *(mapping(override.get(name)) for name in MULTIMODAL_KEYS))
    return any(bool(part.get("save_sharded_checkpoint")) for part in parts)


def compiles_in_scratch(config: EndpointConfig, plan: EnginePlan) -> bool:
    """Whether a start without a store compiles into the scratch directory."""
    saves = plan.line.startswith(("nxdi", "fork")) and not plan.line.endswith(SUFFIX)
    return saves and not config.artifact_store and not config.compiled_artifacts


def with_scratch_artifacts(
    config: EndpointConfig, plan: EnginePlan, model: Model, companions: Companions
) -> EnginePlan:
    """The plan of an engine that loads what an earlier start compiled with the same key, or compiles there."""
    if not compiles_in_scratch(config, plan):
        return plan
    backend = artifact_backend(config, plan, Path(model.path), companions)
    # The last key is the weights' one if there are any: those of another checkpoint are never loaded.
    key = backend.keys(backend.key_inputs(plan))[-1].digest
    revision = plan.engine_args.get("revision")
    directory = config.scratch / "compiled" / digest([key, revision])[:32]
    artifacts = describe(DirectoryObjects(directory)) if directory.is_dir() else None
    # A branch of a hub model moves, and the shards do not say which commit they are from.
    moves = not model.size and backend.keeps_weights(plan) and not COMMIT.fullmatch(str(revision))
    if moves:
        logger.warning("the weights of %s are written again at each start: set its revision to a commit", model.path)
    if artifacts is not None and artifacts.loadable and not moves:
        logger.info("loading what an earlier start compiled: %s", directory)
        # The loader reads the checkpoint from the path in this file. A graph may be from another checkpoint's start.
        backend.paths(plan, directory).rewrite(directory, [CONFIG], directory / f".{CONFIG}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
        backend.prepare()
        cache = backend.neff_cache(plan, ArtifactStore(DirectoryObjects(config.scratch)), None)
        if cache is not None and cache.root.is_relative_to(config.scratch):  # not one that others may compile into now
            cache.clean()
        kept = "they are lost with this instance: ENDPOINT_ARTIFACT_STORE would keep them"
        logger.warning("the artifacts are compiled into %s, and %s", directory, kept)
    return backend.to_compile(plan, directory)
