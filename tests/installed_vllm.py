"""Which vLLM the tests run with, where the facts of one version differ from those of another."""

from __future__ import annotations

from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.planning.vllm_versions import public


def version() -> str:
    return public(installed_versions()["vllm"])


def is_016() -> bool:
    """Whether it is 0.16.0, on which the container's own replies have vLLM's fields."""
    return version() == "0.16.0"


def has_token_path() -> bool:
    """Whether the product has a direct token path on it."""
    return version() in {"0.16.0", "0.24.0", "0.29.0", "0.32.0"}
