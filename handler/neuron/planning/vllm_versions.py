"""The version of vLLM in each line, and the versions that this software was tested on.

`handler.engine` has the adapters of each generation. This module does not import vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from handler.config.finding import Finding, Severity
from handler.neuron.lines.line_registry import installed_line

OF_LINE: Final[Mapping[str, str]] = {
    "nxdi-0.16": "0.16.0",
    "nxdi-0.13": "0.13.0",
    "native-0.29": "0.29.0",
    "native-0.24": "0.24.0",
    "native-0.21": "0.21.0",
    "fork-0.9.1": "0.9.1",
    "fork-0.9.1-tnx": "0.9.1",
    "fork-0.7.2": "0.7.2",
    "fork-0.7.2-tnx": "0.7.2",
    "optimum": "0.11.0",
    "cpu": "0.16.0",
}
# On the sample model (docs/neuron-lines.md). No Neuron device was available.
SEEN: Final[Mapping[str, str]] = {
    "0.9.1": "the tests of every engine and of plain endpoints run on its CPU build, with the engine V0",
    "0.11.0": "the tests of every engine and of plain endpoints run on its CPU build",
    "0.16.0": "all tests run on its CPU build",
    "0.24.0": "all tests but those of 0.16 and of NxD Inference run on its CPU build",
    "0.29.0": "all tests but those of 0.16 and of NxD Inference run on its CPU build",
    "0.32.0": "the tests of every engine and a slice of the others run on its CPU build",
}
UNSEEN: Final = "a version that this software was not run on"


@dataclass(frozen=True, slots=True)
class InstalledVllm:
    """The vLLM on this machine. `seen` is which tests were run on this version; "" if none were."""

    version: str
    seen: str

    @classmethod
    def of(cls, installed: Mapping[str, str]) -> InstalledVllm | None:
        """:param installed: `handler.neuron.hardware.installed_packages.installed_versions()`."""
        version = public(installed.get("vllm", ""))
        return cls(version, SEEN.get(version, "")) if version else None

    def __str__(self) -> str:
        return f"vLLM {self.version} is installed: {self.seen or UNSEEN}"

    def findings(self) -> tuple[Finding, ...]:
        """A warning if this software was not run on this version."""
        if self.seen:
            return ()
        why = f"vLLM {self.version} is installed, {UNSEEN}; its Python interfaces may be different"
        fix = f"Install one of {', '.join(SEEN)}, or try a start and a request before you rely on it."
        return (Finding("vllm-not-seen", Severity.WARNING, "vllm", why, fix),)


def version_of(line: str, installed: Mapping[str, str]) -> str | None:
    """The vLLM version that a line would run here: the installed one if it is this line's, else the line's own."""
    if installed_line(installed) == line:
        return public(installed["vllm"])
    return OF_LINE.get(line)


def public(version: str) -> str:
    """The version without its local part: 0.16.0+cpu becomes 0.16.0."""
    return version.partition("+")[0]
