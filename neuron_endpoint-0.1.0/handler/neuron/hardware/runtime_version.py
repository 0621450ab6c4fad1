"""Reads the versions of Neuron's Debian packages (runtime, driver ...), which neuron-monitor does not report."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

STATUS = Path("/var/lib/dpkg/status")
# Debian package -> our name for it (AWS Neuron documentation, "Neuron Components").
PACKAGES = {
    "aws-neuronx-runtime-lib": "runtime",
    "aws-neuronx-collectives": "collectives",
    "aws-neuronx-dkms": "driver",
    "aws-neuronx-tools": "tools",
}


@lru_cache(maxsize=1)
def runtime_versions(status: Path = STATUS) -> dict[str, str]:
    """The versions of the installed ones: `{"runtime": "2.27.23.0", ...}`."""
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
