"""Versions of the Neuron software that is no Python package: neuron-monitor does not report them, dpkg knows them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

STATUS = Path("/var/lib/dpkg/status")
# What each is called here, and the Debian package that brings it (AWS Neuron documentation, "Neuron Components").
PACKAGES = {
    "aws-neuronx-runtime-lib": "runtime",
    "aws-neuronx-collectives": "collectives",
    "aws-neuronx-dkms": "driver",
    "aws-neuronx-tools": "tools",
}


@lru_cache(maxsize=1)
def runtime_versions(status: Path = STATUS) -> dict[str, str]:
    """`{"runtime": "2.27.23.0", ...}`: those that are installed."""
    found: dict[str, str] = {}
    name = ""
    try:
        lines = status.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "Package":
            name = PACKAGES.get(value.strip(), "")
        elif field == "Version" and name:
            found[name] = value.strip()
    return found
