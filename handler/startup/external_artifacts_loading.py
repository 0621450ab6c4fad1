"""Loads external artifacts: compiled elsewhere, and named by a setting. Fetches them and compares them with the plan.

The plugin loads the directory in NEURON_COMPILED_ARTIFACTS without a check. It verifies no digest, ignores the
configuration if it differs, and crashes on a truncated file. So a difference, or a file that cannot be loaded, ends the
start here, with an error that names the field or the file.

A directory that is missing or empty is compiled into. The plugin fills a directory inside it, whose files are moved up
once the engine is warm. So the next start does not take what a killed compile has left for artifacts. The directory
itself cannot be replaced by a finished one, because it may be a volume.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from handler.artifacts.external.cross_check import cross_check
from handler.artifacts.external.external_artifacts import (
    CONFIG,
    NOT_VOUCHED,
    SHARDED_ON_LOAD,
    ExternalArtifacts,
    describe,
    saved_neuron_config,
)
from handler.artifacts.external.external_source import ARCHIVES, fetch_external_artifacts
from handler.artifacts.restore.model_paths import ModelPaths
from handler.artifacts.restore.restore_target import require_scratch
from handler.artifacts.store.publication import MADE_WEIGHTS, relative_files
from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.config.problems import SettingErrors
from handler.errors import SettingError
from handler.neuron.checkpoint.checkpoint_files import holds_weights
from handler.neuron.checkpoint.checkpoint_reader import read_facts
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.current_machine import this_machine
from handler.neuron.lines.fork import SUFFIX
from handler.neuron.lines.optimum_neuron import NAME as OPTIMUM
from handler.startup.progress_display import of_bytes, shown
from handler.startup.serving_state import ServingState
from handler.storage.directory_objects import DirectoryObjects

logger = logging.getLogger(__name__)
# Not of `model.pt`, which is the graph.
CHECKPOINTS = (".safetensors", ".bin")
DIRECTORY = "NEURON_COMPILED_ARTIFACTS"
# Begins the name of the directory of a running compile.
COMPILING = ".compiling-"


def with_external_artifacts(state: ServingState, plan: EnginePlan, paths: ModelPaths) -> EnginePlan:
    """The plan with the environment variable that makes the plugin load the external artifacts, if there are any.

    :param paths: what artifacts that are fetched must name in place of the paths of the machine that compiled them.
    :raises SettingError: the directory must be written and cannot.
    :raises SettingErrors: they cannot be loaded, or were compiled for other values. The error has each field with both
        values.
    """
    config = state.config
    if not config.compiled_artifacts or plan.line in ("cpu", OPTIMUM) or plan.line.endswith(SUFFIX):
        return plan
    setting = config.source("compiled_artifacts").name or "compiled_artifacts"
    directory = Path(config.compiled_artifacts)
    if config.on_miss == "compile" and _is_free(directory, config.compiled_artifacts):
        require_scratch(directory, setting)
        logger.info("%s is empty: the engine compiles, and saves its artifacts there", directory)
        return replace(plan, env={**plan.env, DIRECTORY: str(_compile_directory(directory))})
    state.lifecycle.stage("fetch artifacts")
    target = config.scratch / "external-artifacts" / sha256(config.compiled_artifacts.encode()).hexdigest()[:16]
    with shown(state.lifecycle, "fetch artifacts") as progress:
        directory = fetch_external_artifacts(config.compiled_artifacts, target, setting, of_bytes(progress))
    try:
        artifacts = _require_usable(directory, config, plan, setting)
        if directory != target:  # the owner's, in which no path is changed
            _raise_errors(_lost_weights(directory, artifacts), setting)
    except SettingErrors:
        if directory == target:  # the next start fetches what has replaced them
            shutil.rmtree(target, ignore_errors=True)
        raise
    if directory == target:
        if (made := directory / MADE_WEIGHTS).is_dir():
            paths = replace(paths, quantized_checkpoints=str(made))
        paths.rewrite(directory, relative_files(directory), directory / f".{CONFIG}-{os.getpid()}")
    return replace(plan, env={**plan.env, DIRECTORY: str(directory)})


def _require_usable(directory: Path, config: EndpointConfig, plan: EnginePlan, setting: str) -> ExternalArtifacts:
    """:raises SettingErrors: as `with_external_artifacts`."""
    artifacts = describe(DirectoryObjects(directory))
    logger.info("the external artifacts at %s cannot be checked for: %s", artifacts.where, "; ".join(NOT_VOUCHED))
    _raise_errors(artifacts.findings, setting)
    instance = this_machine(config)
    lnc = plan.env.get("NEURON_LOGICAL_NC_CONFIG") or (str(instance.lnc[0]) if instance else None)
    facts = read_facts(config.model)
    model_config = facts.config if facts else None
    differences = cross_check(artifacts.config, plan, lnc=int(lnc) if lnc else None, model_config=model_config)
    _raise_errors(differences, setting)
    return artifacts


def _lost_weights(directory: Path, artifacts: ExternalArtifacts) -> list[Finding]:
    """Errors for weights at paths of another machine: the plugin would compile again, without a word.

    NxD Inference reads them at the saved paths, those of the model also in the artifacts' directory (models/
    application_base.py, `checkpoint_loader_fn`). The plugin takes its FileNotFoundError for missing artifacts
    (worker/neuronx_distributed_model_loader.py, 0.5.0).
    """
    if not any(finding.code == SHARDED_ON_LOAD for finding in artifacts.findings):
        return []
    config = saved_neuron_config(artifacts.config, "text_config") or {}
    name = "quantized_checkpoints_path" if config.get("quantized") else "_name_or_path"
    place = (config if name in config else artifacts.config).get(name)
    beside = name == "_name_or_path" and any(holds_weights(path.name, CHECKPOINTS) for path in directory.iterdir())
    if not isinstance(place, str) or not place.startswith("/") or Path(place).exists() or beside:
        return []
    why = f"its {CONFIG} has '{place[:200]}' as {name}, which is not on this machine, so the plugin would compile again"
    fix = "Put the weights there, give the artifacts in S3 or as an archive, or compile with save_sharded_checkpoint."
    return [Finding("artifacts-weights-lost", Severity.ERROR, "", why, fix)]


def keep_compiled(plan: EnginePlan) -> None:
    """Moves what an engine has compiled up to the directory that the setting names. Call once the engine is warm."""
    compiled = Path(plan.env.get(DIRECTORY, ""))
    if not compiled.name.startswith(COMPILING):
        return
    try:
        if _is_free(compiled.parent, str(compiled.parent)):
            for path in sorted(compiled.iterdir(), key=lambda path: path.name == CONFIG):
                path.rename(compiled.parent / path.name)
        else:
            logger.warning("another process has compiled into %s meanwhile: its artifacts stay", compiled.parent)
        shutil.rmtree(compiled)
    except OSError as error:
        logger.warning(
            "the engine serves what it compiled, but it could not be moved to %s: %s", compiled.parent, error
        )


def _is_free(directory: Path, source: str) -> bool:
    """Whether a setting names a directory on this machine that does not exist, or has at most unfinished compiles."""
    if source.startswith("s3://") or source.endswith(ARCHIVES):
        return False
    return not directory.exists() or (
        directory.is_dir() and all(path.name.startswith(COMPILING) for path in directory.iterdir())
    )


def _compile_directory(directory: Path) -> Path:
    """Creates the directory of this process's compile. Removes those of processes that have ended first.

    A process holds the lock of its directory until it ends. Names tell nothing: containers share host names and pids.
    """
    for other in directory.iterdir():
        if (descriptor := _lock(other)) is not None:
            logger.warning("an earlier compile into %s was interrupted, and begins again", directory)
            shutil.rmtree(other)
            os.close(descriptor)
    compiling = directory / f"{COMPILING}{uuid4().hex[:8]}"
    compiling.mkdir()
    _lock(compiling)
    return compiling


def _lock(directory: Path) -> int | None:
    """Locks a directory until the descriptor is closed or this process has ended.

    :returns: the descriptor. None if another process has locked it, or the file system cannot tell.
    """
    descriptor = os.open(directory, os.O_DIRECTORY)
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _raise_errors(findings: Sequence[Finding], setting: str) -> None:
    """:raises SettingErrors: there are errors among the findings. The others are logged."""
    for finding in findings:
        if finding.severity is not Severity.ERROR:
            logger.warning("[%s] %s: %s. %s", finding.code, finding.setting, finding.why, finding.fix)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        raise SettingErrors([SettingError(error.setting or setting, error.why, error.fix) for error in errors])
