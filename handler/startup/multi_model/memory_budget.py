"""What a further engine takes of the host's memory, and what is left for it. On the CPU line alone, so far.

Counted is what an engine was promised, not what it holds: its key-value cache is reserved when it starts and filled
later. What other engines were promised and have not taken yet is therefore no room for this one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from handler.engine.engine import Engine
from handler.errors import SettingError
from handler.neuron.checkpoint.checkpoint_reader import read_facts
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware import host_memory
from handler.neuron.hardware.host_cpu import SPACE

GIB = 1024**3
# vLLM's share of a NUMA node's memory where that is not set (vllm/platforms/cpu.py, get_device_total_memory).
UNSET_SHARE = 0.5
# An engine core's own memory beside weights and cache (docs/sagemaker.md has the measurement).
CORE = GIB
HALVES = ("bfloat16", "float16")
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What one engine takes, in bytes.

    :param cache_from: why the cache is of this size.
    """

    weights: int
    cache: int
    cache_from: str

    @property
    def bytes(self) -> int:
        return self.weights + self.cache + CORE

    def __str__(self) -> str:
        parts = f"weights {gib(self.weights)}, key-value cache {gib(self.cache)} ({self.cache_from})"
        return f"{gib(self.bytes)} ({parts}, its process {gib(CORE)})"


def need_of(path: Path, plan: EnginePlan, environ: Mapping[str, str] = os.environ) -> MemoryNeed:
    """What the engine of a plan will take for the model in a directory.

    :raises SettingError: the cache's size is no number.
    """
    weights = sum(file.stat().st_size for pattern in WEIGHTS for file in path.glob(pattern)) * _growth(path, plan)
    space = plan.env.get(SPACE) or environ.get(SPACE)
    if space:
        if not space.strip().isdecimal():
            raise SettingError(SPACE, f"'{space[:60]}' is no whole number", "Give the GiB of each engine's cache.")
        return MemoryNeed(weights, int(space) * GIB, f"{SPACE}={space}")
    unset = int(host_memory.total() // host_memory.nodes() * UNSET_SHARE)
    return MemoryNeed(weights, unset, f"{SPACE} is not set, so vLLM takes half")


def _growth(path: Path, plan: EnginePlan) -> int:
    """2 where the files hold 16-bit weights and the plan computes in float32."""
    if plan.engine_args.get("dtype") != "float32":
        return 1
    facts = read_facts(str(path))
    return 2 if facts is not None and facts.torch_dtype in HALVES and not facts.quantized else 1


def room(running: Iterable[tuple[Engine, MemoryNeed]]) -> int:
    """Bytes that a further engine may take.

    :param running: the engines that there are, each with what it was promised.
    """
    owed = sum(max(0, need.bytes - host_memory.resident(engine.pids)) for engine, need in running)
    return max(0, host_memory.available() - owed)


def gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
