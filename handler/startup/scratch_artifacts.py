"""Keeps what NxD Inference compiles in the scratch directory, if there is no store and no directory is configured.

By itself the loader compiles beside the model, which is read-only on SageMaker, and compiles at every start there
(vllm-project/vllm-neuron, worker/neuronx_distributed_model_loader.py; the fork's does the same). It also loads any
directory without a check, so the directory's name is the artifacts' key, and a directory that a killed compile left is
removed.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from handler.artifacts.external.external_artifacts import describe
from handler.artifacts.identity.canonical_json import digest
from handler.config.endpoint_config import EndpointConfig
from handler.model.companions import Companions
from handler.model.model_source import Model
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.lines.fork import SUFFIX
from handler.startup.artifact_backends import artifact_backend
from handler.storage.directory_objects import DirectoryObjects

logger = logging.getLogger(__name__)


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
    # A hub id has no files yet: its plan, which names it, is the key.
    key = backend.keys(backend.key_inputs(plan))[0].digest if model.size else digest(plan.document())
    directory = config.scratch / "compiled" / key[:32]
    artifacts = describe(DirectoryObjects(directory)) if directory.is_dir() else None
    if artifacts is not None and artifacts.loadable:
        logger.info("loading what an earlier start compiled: %s", directory)
    else:
        shutil.rmtree(directory, ignore_errors=True)
        kept = "they are lost with this instance: ENDPOINT_ARTIFACT_STORE would keep them"
        logger.warning("the artifacts are compiled into %s, and %s", directory, kept)
    return backend.to_compile(plan, directory)
