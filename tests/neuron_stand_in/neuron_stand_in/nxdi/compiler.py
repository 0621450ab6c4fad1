"""The compile: neuron_config.json first, then the graphs, model.pt, and the shards where they are wanted.

Order and files: NxDI, models/application_base.py. The work directory's layout: aws-neuron/aws-neuron-sdk#1114.
"""

from __future__ import annotations

import json
import logging
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuron_stand_in import neff_cache
from neuron_stand_in.checkpoint import read_checkpoint, write_shard
from neuron_stand_in.faults import strike, strikes_at
from neuron_stand_in.nxdi import inference_config, model_file
from neuron_stand_in.nxdi.buckets import context_buckets, token_buckets
from neuron_stand_in.settings import Stage, StandInSettings

logger = logging.getLogger("neuron_stand_in")

WORKDIR = "/tmp/nxd_model/"


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph to compile: a submodel at one bucket."""

    tag: str
    rank: int
    bucket: int

    def hlo(self, document: Mapping[str, Any]) -> bytes:
        """What is compiled: everything of the configuration but paths."""
        keyed = {key: value for key, value in document["neuron_config"].items() if not key.endswith("_path")}
        shape = model_file.model_shape(document)
        return json.dumps([self.tag, self.bucket, shape, keyed], sort_keys=True, default=str).encode()


def graphs(neuron_config: Mapping[str, Any]) -> list[Graph]:
    """:raises NotImplementedError: chunked prefill."""
    if neuron_config["chunked_prefill_config"] is not None:
        raise NotImplementedError("Chunked Prefill is not available in NxDI for now")
    prefill = [Graph("context_encoding_model", rank, b) for rank, b in enumerate(context_buckets(neuron_config))]
    tag = "fused_speculation_model" if neuron_config["enable_fused_speculation"] else "token_generation_model"
    return prefill + [Graph(tag, rank, b) for rank, b in enumerate(token_buckets(neuron_config))]


def compile_model(
    document: Mapping[str, Any], directory: Path, settings: StandInSettings, environment: Mapping[str, str]
) -> None:
    """Fills the directory. Whatever ends it leaves what was written so far, as the real one does.

    :raises RuntimeError: the compiler failed, now or earlier (a poisoned cache entry).
    """
    todo = graphs(document["neuron_config"])
    if document["neuron_config"]["quantized"]:
        _save_quantized(document)
    inference_config.save(document, directory)
    strike(settings, Stage.CONFIG)
    neffs = _trace(document, todo, settings, environment)
    content = model_file.body(document, neffs, settings.model_bytes)
    if strikes_at(settings, Stage.MODEL):
        (directory / model_file.NAME).write_bytes(content[: len(content) // 2])
        strike(settings, Stage.MODEL)
    (directory / model_file.NAME).write_bytes(content)
    _shard(document, directory, settings)
    logger.info("Finished building model in %s", directory)


def _trace(
    document: Mapping[str, Any], todo: list[Graph], settings: StandInSettings, environment: Mapping[str, str]
) -> dict[str, bytes]:
    workdir = Path(environment.get("BASE_COMPILE_WORK_DIR") or WORKDIR)
    flags = shlex.split(environment.get("NEURON_CC_FLAGS", ""))
    root = neff_cache.cache_root(environment)
    neffs = {}
    for number, graph in enumerate(todo):
        if number == len(todo) // 2:
            _fail_in_trace(document, graph, settings, root, flags, workdir)
        place = workdir / graph.tag / f"_tp0_bk{graph.rank}"
        (place / "model").mkdir(parents=True, exist_ok=True)
        hlo = graph.hlo(document)
        (place / "model" / "graph.hlo").write_bytes(hlo)
        module = root and neff_cache.module(root, settings.compiler, hlo, flags, place)
        neff = module.neff() if module else None
        logger.info("Compiling graph %d of %d: %s, bucket %d%s", number + 1, len(todo), graph.tag, graph.bucket,
                    "" if neff is None else ", from the cache")  # fmt: skip
        if neff is None:
            if module:
                module.begin(hlo)
            time.sleep(settings.compile_seconds / len(todo))
            neff = b"NEFF of the stand-in\n" + hlo
            if module:
                module.succeed(neff)
        (place / "graph.neff").write_bytes(neff)
        neffs[f"{graph.tag}/{graph.bucket}.neff"] = neff
    inference_config.save(document, workdir)
    return neffs


def _fail_in_trace(
    document: Mapping[str, Any],
    graph: Graph,
    settings: StandInSettings,
    root: Path | None,
    flags: list[str],
    workdir: Path,
) -> None:
    """A compiler that fails leaves its log in the cache; one that is killed does not come to it."""
    try:
        strike(settings, Stage.TRACE)
    except RuntimeError as error:
        if root is not None:
            place = workdir / graph.tag / f"_tp0_bk{graph.rank}"
            hlo = graph.hlo(document)
            module = neff_cache.module(root, settings.compiler, hlo, flags, place)
            module.begin(hlo)
            module.fail(str(error))
        raise


def _shard(document: Mapping[str, Any], directory: Path, settings: StandInSettings) -> None:
    neuron_config = document["neuron_config"]
    if neuron_config["skip_sharding"] or not neuron_config["save_sharded_checkpoint"]:
        return
    tensors = read_checkpoint(weights_directory(document, Path(document["_name_or_path"])))
    for rank in range(neuron_config["world_size"]):
        write_shard(tensors, rank, neuron_config["world_size"], directory)
        if rank == 0:
            strike(settings, Stage.SHARDS)


def weights_directory(document: Mapping[str, Any], directory: Path) -> Path:
    """The checkpoint that is sharded on load: at the saved `_name_or_path`, or where that is gone, in `directory`.

    :raises FileNotFoundError: quantized weights that are not there.
    """
    neuron_config = document["neuron_config"]
    if neuron_config["quantized"]:
        quantized = Path(neuron_config["quantized_checkpoints_path"])
        if not quantized.exists():
            raise FileNotFoundError(f"Quantized checkpoint file not found: {quantized}")
        return quantized
    saved = document.get("_name_or_path")
    return Path(saved) if saved and Path(saved).exists() else directory


def _save_quantized(document: Mapping[str, Any]) -> None:
    """Writes "quantized" weights: the same tensors, unquantized. As NxDI, it pickles them where no directory is."""
    import torch
    from safetensors.torch import save_file

    path, tensors = (
        Path(document["neuron_config"]["quantized_checkpoints_path"]),
        read_checkpoint(Path(document["_name_or_path"])),
    )
    if path.is_dir():
        save_file(tensors, path / "model.safetensors")
    else:
        torch.save(tensors, path)
