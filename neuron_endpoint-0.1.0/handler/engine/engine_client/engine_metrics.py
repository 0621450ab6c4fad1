"""Keeps vLLM's metrics of several engines in one process.

vLLM registers its metrics in prometheus_client's global registry, and unregisters those of an earlier engine first
(v1/metrics/loggers.py, `PrometheusStatLogger`; v1/metrics/prometheus.py, `unregister_vllm_metrics`). The first engine
would go on counting, but nobody would see it. So the metrics of a further engine are moved to a registry of their own,
and those of the earlier engines are registered again. A scrape in the few milliseconds in between does not have them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry

Made = TypeVar("Made")


def with_own_registry(make: Callable[[], Made]) -> tuple[Made, CollectorRegistry]:
    """Calls `make`, and returns its result with a registry of the metrics that it registered."""
    before = _of_vllm()
    own = CollectorRegistry()
    try:
        made = make()
    finally:
        for collector in _of_vllm() - before:
            REGISTRY.unregister(collector)
            own.register(collector)
        for collector in before - _of_vllm():
            REGISTRY.register(collector)
    return made, own


def _of_vllm() -> set[Any]:
    """vLLM's metrics, which vLLM itself finds by their name."""
    return {found for found in list(REGISTRY._collector_to_names) if "vllm" in getattr(found, "_name", "")}
