"""What this machine is: its instance type, and its CPU with the memory that an engine may use. Uses no network."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.neuron.hardware import host_memory
from handler.neuron.hardware.instance_catalogue import InstanceType, find_for_plan, lookup

# EC2's Nitro machines have their instance type here. Containers see the host's.
PRODUCT_NAMES = ("/sys/devices/virtual/dmi/id/product_name", "/sys/class/dmi/id/product_name")

CPUINFO: Final = Path("/proc/cpuinfo")
NODES: Final = Path("/sys/devices/system/node")
SPACE: Final = "VLLM_CPU_KVCACHE_SPACE"
# Data type -> instruction sets that compute with it, by Linux's names for x86 and Arm. One of them is enough. Those of
# fp8 are vLLM's own condition for such a cache (v1/attention/backends/cpu_attn.py, 0.24 to 0.32).
ARITHMETIC: Final[Mapping[str, frozenset[str]]] = {
    "bfloat16": frozenset({"avx512_bf16", "amx_bf16", "bf16"}),
    "float16": frozenset({"avx512_fp16", "amx_fp16", "asimdhp"}),
    "fp8": frozenset({"avx512f", "amx_tile"}),
}


def read_text(path: str) -> str | None:
    """The text of a small file; None if it does not exist or cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")[:200]
    except OSError:
        return None


def this_machine(config: EndpointConfig, read: Callable[[str], str | None] = read_text) -> InstanceType | None:
    """The instance to plan for; None if none is configured and this machine has no Neuron cores.

    An instance that is configured by SageMaker's name (`ml.`) must be one that SageMaker hosts.

    :raises SettingError: the configured instance is unknown, or SageMaker does not host it.
    """
    if config.instance:
        return find_for_plan(config.instance, config.source("instance").name or "ENDPOINT_INSTANCE")
    for path in PRODUCT_NAMES:
        text = read(path)
        instance = lookup(text) if text else None
        if instance is not None:
            return instance
    return None


@dataclass(frozen=True, slots=True)
class HostCpu:
    """A CPU and its memory.

    :param flags: the instruction sets, by Linux's names.
    :param memory: the memory that this machine or container may use, in bytes.
    :param free: the memory that is free now, in bytes.
    :param nodes: the NUMA nodes whose cores this process may use; 0 if that is not known.
    :param cores: the last core that this process may use, plus 1; 0 if that is not known.
    """

    flags: frozenset[str]
    memory: int
    free: int
    nodes: int = 0
    cores: int = 0

    def lacks(self, dtype: str | None) -> bool:
        """Whether the CPU is known to have no arithmetic for a data type. False for types that every CPU supports."""
        arithmetic = ARITHMETIC.get(dtype or "")
        return arithmetic is not None and not self.flags & arithmetic


def cpu_flags(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """The instruction sets of the first listed CPU; empty if the system lists none."""
    try:
        lines = cpuinfo.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return frozenset(value.split())
    return frozenset()


def host_cpu() -> HostCpu | None:
    """This machine's CPU; None if the system does not list its instruction sets."""
    flags = cpu_flags()
    cores = max(os.sched_getaffinity(0)) + 1
    return HostCpu(flags, host_memory.limit(), host_memory.available(), numa_nodes(), cores) if flags else None


def numa_nodes(root: Path = NODES) -> int:
    """The NUMA nodes with a core that this process may use. A system that lists none has one."""
    cores = os.sched_getaffinity(0)
    return max(1, sum(any((node / f"cpu{core}").exists() for core in cores) for node in root.glob("node[0-9]*")))
