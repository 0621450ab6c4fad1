"""Which vLLM the tests run with, where the facts of one version differ from those of another."""

from __future__ import annotations

from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.planning.vllm_versions import public


def version() -> str:
    return public(installed_versions()["vllm"])


def is_016() -> bool:
    """Whether it is 0.16.0, for which the product's direct token path is written."""
    return version() == "0.16.0"
