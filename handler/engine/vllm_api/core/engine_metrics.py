"""vLLM's own figures of a second engine in one process.

vLLM makes them in prometheus_client's one registry and takes those of an earlier engine out of it first
(v1/metrics/loggers.py, `PrometheusStatLogger`; v1/metrics/prometheus.py, `unregister_vllm_metrics`): the first engine's
would be counted on, and never seen again. So a further engine's are moved to a registry of their own, and the others
put back. In between, for the few milliseconds that vLLM takes from one to the other, a scrape lacks them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry

Made = TypeVar("Made")


def apart(make: Callable[[], Made]) -> tuple[Made, CollectorRegistry]:
    """What `make` makes, and the figures that come with it, which go when the registry does."""
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
    """By the name that vLLM goes by itself."""
    return {found for found in list(REGISTRY._collector_to_names) if "vllm" in getattr(found, "_name", "")}
