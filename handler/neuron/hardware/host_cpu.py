"""The CPU of the machine that this process runs on: its instruction sets, and the memory an engine may take there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from handler.neuron.hardware import host_memory

CPUINFO: Final = Path("/proc/cpuinfo")
SPACE: Final = "VLLM_CPU_KVCACHE_SPACE"
# What computes with a data type, by Linux's names: x86's, then Arm's. One of them is enough.
ARITHMETIC: Final[Mapping[str, frozenset[str]]] = {
    "bfloat16": frozenset({"avx512_bf16", "amx_bf16", "bf16"}),
    "float16": frozenset({"avx512_fp16", "amx_fp16", "asimdhp"}),
}


@dataclass(frozen=True, slots=True)
class HostCpu:
    """A CPU and its memory.

    :param flags: its instruction sets, by Linux's names.
    :param memory: bytes that this machine or container may use.
    :param cache: bytes of an engine's key-value cache.
    """

    flags: frozenset[str]
    memory: int
    cache: int

    def lacks(self, dtype: str | None) -> bool:
        """It is known to have no arithmetic for a data type. False for types that every CPU computes with."""
        arithmetic = ARITHMETIC.get(dtype or "")
        return arithmetic is not None and not self.flags & arithmetic


def cpu_flags(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """The instruction sets of the first CPU that is listed; empty where the system lists none."""
    try:
        lines = cpuinfo.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return frozenset(value.split())
    return frozenset()


def host_cpu(environ: Mapping[str, str] = os.environ) -> HostCpu | None:
    """This machine's CPU; None where the system does not list its instruction sets."""
    flags = cpu_flags()
    if not flags:
        return None
    space = environ.get(SPACE, "").strip()
    given = int(space) * 1024**3 if space.isdecimal() else 0
    # vLLM takes half of a NUMA node's memory where nothing is set (vllm/platforms/cpu.py).
    return HostCpu(flags, host_memory.limit(), given or host_memory.total() // host_memory.nodes() // 2)
