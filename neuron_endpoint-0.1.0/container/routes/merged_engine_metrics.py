"""Merges vLLM's metrics of several engines into one text. vLLM's own are made for one engine in a process.

Each additional engine has its own registry (`handler.engine.engine_client.engine_metrics`), with the same names and
other labels (`model_name`). A scrape may contain a metric family once, so the samples of equal names are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import Metric

from container.service import Service


class MergedRegistry:
    """The metrics of several registries, each family once."""

    def __init__(self, registries: Iterable[CollectorRegistry]) -> None:
        self._registries = tuple(registries)

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for registry in self._registries:
            for family in registry.collect():
                if family.name in families:
                    families[family.name].samples += family.samples
                else:
                    families[family.name] = family
        yield from families.values()


def vllm_registry(service: Service) -> CollectorRegistry:
    """vLLM's metrics of all engines of this process."""
    further = [] if service.models is None else [engine.metrics_registry for engine in service.models.engines()]
    found = [registry for registry in further if registry is not None]
    if not found:
        return REGISTRY
    registry = CollectorRegistry()
    registry.register(MergedRegistry((REGISTRY, *found)))
    return registry
