"""Estimates the host memory that a further engine needs, and how much is free. For the CPU line only.

An engine's key-value cache is reserved when it starts, and filled later. So each engine is counted with the memory that
it may use, not with what it uses now. Memory that other engines have reserved and not used yet is not free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path

from handler.engine.engine import Engine
from handler.neuron.checkpoint.checkpoint_files import LocalFiles, holds_weights
from handler.neuron.checkpoint.checkpoint_reader import read_facts, shards_or_all
from handler.neuron.checkpoint.model_facts import number
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware import host_memory
from handler.neuron.hardware.current_machine import SPACE
from handler.neuron.lines.plan_draft import engines_here

GIB = 1024**3
# The share of a NUMA node's memory that vLLM uses for the cache by default (vllm/platforms/cpu.py,
# get_device_total_memory).
UNSET_SHARE = 0.5
# The memory of an engine core besides weights and cache (docs/sagemaker.md has the measurement).
CORE = GIB
HALVES = ("bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The memory that one engine needs, in bytes.

    :param cache: of all ranks. `cache_from` is the reason for its size.
    :param ranks: each is a process.
    """

    weights: int
    cache: int
    cache_from: str
    ranks: int = 1

    @property
    def bytes(self) -> int:
        return self.weights + self.cache + self.ranks * CORE

    def __str__(self) -> str:
        parts = f"weights {gib(self.weights)}, key-value cache {gib(self.cache)} ({self.cache_from})"
        processes = "its process" if self.ranks == 1 else f"its {self.ranks} processes"
        return f"{gib(self.bytes)} ({parts}, {processes} {gib(self.ranks * CORE)})"


def need_of(path: Path, plan: EnginePlan) -> MemoryNeed:
    """The memory that an engine needs with a plan, for the model in a directory."""
    files = LocalFiles(path, str(path))
    sizes = files.listing()
    # Without safetensors, or with Mistral's own format only, all that vLLM may read.
    names = shards_or_all(files) or [name for name in sizes if holds_weights(name)]
    engines = engines_here(plan.engine_args)
    weights = engines * sum(sizes.get(name, 0) for name in names) * _growth(path, plan)
    ranks = engines * prod(max(number(plan.engine_args, f"{kind}_parallel_size"), 1) for kind in ("tensor", "pipeline"))
    of_all = f" for each of {ranks} ranks" if ranks > 1 else ""
    space = plan.env.get(SPACE)
    if space:
        return MemoryNeed(weights, int(space) * GIB * ranks, f"{SPACE}={space}{of_all}", ranks)
    unset = int(host_memory.total() // host_memory.nodes() * UNSET_SHARE)
    return MemoryNeed(weights, unset * ranks, f"{SPACE} is not set, so vLLM takes half{of_all}", ranks)


def _growth(path: Path, plan: EnginePlan) -> int:
    """How much larger the weights are in memory: 2 if the files hold 16-bit weights and the plan uses float32."""
    if plan.engine_args.get("dtype") != "float32":
        return 1
    facts = read_facts(str(path))
    return 2 if facts is not None and facts.torch_dtype in HALVES and not facts.quantized else 1


def room(running: Iterable[tuple[Engine, MemoryNeed]], ended: Iterable[Engine] = ()) -> int:
    """How many bytes a further engine may use.

    :param running: the running engines, each with the memory that is reserved for it.
    :param ended: engines that are asked about as if they had ended.
    """
    reserved = sum(max(0, need.bytes - host_memory.resident(engine.pids)) for engine, need in running)
    freed = sum(host_memory.resident(engine.pids) for engine in ended)
    return max(0, host_memory.available() + freed - reserved)


def gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
