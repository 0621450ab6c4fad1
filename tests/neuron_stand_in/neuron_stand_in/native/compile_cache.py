"""$VLLM_CACHE_ROOT/neuron/compile_cache/<md5>/: one directory for each graph, complete when its mark is there.

Root: aws-neuron/aws-neuron-sdk#1371. The mark: aws-neuron/aws-neuron-sdk#1368.
Traces (AWS Neuron documentation, "How to use the Precompile Cache"): kept below the root too where VLLM_NEURON_BACKEND
names the native route. Their names are this stand-in's own.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuron_stand_in.faults import strike
from neuron_stand_in.native.read_keys import READ
from neuron_stand_in.settings import Stage, StandInSettings

logger = logging.getLogger("neuron_stand_in")

MARK = ".compilation_complete"
FORBID = ("VLLM_NEURON_DISABLE_WARMUP_COMPILE", "NEURON_LIBTORCH_ASSERT_CACHE_HIT")


def cache_root(environment: Mapping[str, str]) -> Path:
    root = environment.get("VLLM_CACHE_ROOT")
    return Path(root) if root else Path.home() / ".cache" / "vllm"


def cache_directory(environment: Mapping[str, str]) -> Path:
    return cache_root(environment) / "neuron" / "compile_cache"


def keeps_traces(environment: Mapping[str, str]) -> bool:
    named = environment.get("VLLM_NEURON_BACKEND", "") in ("neuron_native", "neuron")
    return named and environment.get("TORCH_CACHING_PRECOMPILE", "1") != "0"


def graphs(neuron_config: Mapping[str, Any], batched_tokens: int, sequences: int) -> list[tuple[str, int]]:
    """One prefill graph for each bucket of batched tokens, one decode graph for each of sequences."""
    unknown = sorted(neuron_config.keys() - READ["neuron_config"])
    if unknown:
        logger.warning("neuron_config: unknown keys %s", unknown)
    tokens = neuron_config.get("num_batched_tokens_buckets") or [batched_tokens]
    seqs = neuron_config.get("num_seqs_buckets") or [sequences]
    return [("prefill", bucket) for bucket in tokens] + [("decode", bucket) for bucket in seqs]


def compile_missing(
    keyed: Mapping[str, Any],
    todo: list[tuple[str, int]],
    settings: StandInSettings,
    environment: Mapping[str, str],
) -> int:
    """Compiles what the cache has not; the number of graphs compiled.

    :raises RuntimeError: one is missing and a variable of FORBID forbids the compile, or it failed.
    """
    compiled = 0
    for graph in todo:
        key = json.dumps([graph, keyed, settings.compiler], sort_keys=True, default=str).encode()
        directory = cache_directory(environment) / hashlib.md5(key, usedforsecurity=False).hexdigest()
        _trace(graph, cache_root(environment) / "precompile" / directory.name, environment)
        if (directory / MARK).is_file():
            continue
        for name in FORBID:
            if environment.get(name) == "1":
                raise RuntimeError(f"{graph} is not in the compile cache, and {name}=1")
        logger.info("Compiling %s", graph)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "graph.hlo").write_bytes(key)
        strike(settings, Stage.TRACE)
        time.sleep(settings.compile_seconds / len(todo))
        (directory / "graph.neff").write_bytes(b"NEFF of the stand-in\n" + key)
        (directory / MARK).touch()
        compiled += 1
    return compiled


def _trace(graph: tuple[str, int], kept: Path, environment: Mapping[str, str]) -> None:
    if kept.is_file() and keeps_traces(environment):
        return
    logger.info("Tracing %s", graph)
    if keeps_traces(environment):
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(graph))
