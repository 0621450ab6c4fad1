"""Lists every line; finds a line by name, by installed packages, or by feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from handler.config.dialects.neuron_variables import NXD_INFERENCE, OPTIMUM_NEURON, TRANSFORMERS_NEURONX
from handler.neuron.lines.cpu import CPU
from handler.neuron.lines.fork import FORK_072, FORK_091, SUFFIX, TNX_072, TNX_091
from handler.neuron.lines.line import ConfigKeys, Feature, Line
from handler.neuron.lines.native.native_lines import NATIVE_021, NATIVE_024, NATIVE_029
from handler.neuron.lines.nxdi import NXDI_013, NXDI_016
from handler.neuron.lines.optimum_neuron import OPTIMUM

LINES: Final[tuple[Line, ...]] = (
    NXDI_016,
    NXDI_013,
    NATIVE_029,
    NATIVE_024,
    NATIVE_021,
    FORK_091,
    TNX_091,
    FORK_072,
    TNX_072,
    OPTIMUM,
    CPU,
)
# The line that VLLM_NEURON_FRAMEWORK implies if no Neuron software is installed.
LINE_OF_FRAMEWORK: Final = {TRANSFORMERS_NEURONX: TNX_091.name, OPTIMUM_NEURON: OPTIMUM.name}
NAMES: Final = tuple(line.name for line in LINES)


def find_line(name: str, framework: str = "") -> Line | None:
    """Finds a line by its name. The fork's version and transformers-neuronx mean its line of that framework."""
    suffix = SUFFIX if framework == TRANSFORMERS_NEURONX else ""
    named = {line.name: line for line in LINES}
    return named.get(f"{name}{suffix}") or named.get(name)


def reads_overrides(line: Line | None) -> bool:
    """Whether the model is built from what vLLM has read, with `hf_overrides`. NxD Inference reads the file itself."""
    return line is not None and (line.keys is ConfigKeys.NATIVE or line is CPU)


def lines_with(feature: Feature, platform: str | None = None) -> list[str]:
    """The names of the Neuron lines that have a feature, limited to a platform if one is given."""
    fitting = [line for line in LINES if line.has(feature) and line.platforms]
    return [line.name for line in fitting if platform is None or platform in line.platforms]


def installed_line(installed: Mapping[str, str]) -> str | None:
    """The line that the installed packages belong to; None without vLLM."""
    version = installed.get("vllm", "")
    if not version:
        return None
    minor = _minor(version)
    if "vllm-neuron" in installed:
        if minor >= (0, 26):
            return NATIVE_029.name
        if minor >= (0, 22):
            return NATIVE_024.name
        if minor >= (0, 20):
            return NATIVE_021.name
        return NXDI_016.name if minor >= (0, 14) else NXDI_013.name
    fork = NXD_INFERENCE in installed or TRANSFORMERS_NEURONX in installed
    if fork and minor < (0, 10):
        version = FORK_091.name if minor >= (0, 8) else FORK_072.name
        # vLLM prefers NxD Inference if both are installed (platforms/neuron.py).
        return version if NXD_INFERENCE in installed else f"{version}{SUFFIX}"
    if OPTIMUM_NEURON in installed:
        return OPTIMUM.name
    return CPU.name


def _minor(version: str) -> tuple[int, int]:
    parts = version.split(".")
    numbers = ["".join(character for character in part if character in "0123456789") or "0" for part in parts[:2]]
    return int(numbers[0][:6]), int(numbers[1][:6]) if len(numbers) > 1 else 0
