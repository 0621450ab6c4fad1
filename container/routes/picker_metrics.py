"""What a gateway's endpoint picker reads of /metrics: on every line, under vLLM's present names, exact at the scrape.

vLLM writes its gauges when its engine steps. After the last request is aborted they keep the values of the step before.
Source of the names: kubernetes-sigs/gateway-api-inference-extension, model server protocol.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from contextlib import suppress

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

from container.service import Service
from handler.engine.engine import Engine

RUNNING, WAITING, KV_USE = "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"
HITS, QUERIES, LORA = "vllm:prefix_cache_hits", "vllm:prefix_cache_queries", "vllm:lora_requests_info"
OLDER = ("vllm:gpu_cache_usage_perc", "vllm:gpu_prefix_cache_hits", "vllm:gpu_prefix_cache_queries")
OLDER_NAMES = dict(zip((KV_USE, HITS, QUERIES), OLDER, strict=True))
LOOP_WITHIN = 1.0  # seconds
NO_LORA = {"max_lora": "0", "running_lora_adapters": "", "waiting_lora_adapters": ""}


def picker_metrics(service: Service) -> Iterable[Metric]:
    """vLLM's metrics of all engines, completed by what a picker reads."""
    families = engine_families(service)
    for engine in service.engines():
        _complete(families, engine)
    return families.values()


def engine_families(service: Service, names: Collection[str] = ()) -> dict[str, Metric]:
    """vLLM's metrics of all engines of this process, by name.

    vLLM's own are made for one engine in a process. Each additional engine has its own registry
    (`handler.engine.engine_client.engine_metrics`), with the same names and other labels (`model_name`). A scrape may
    contain a metric family once, so the samples of equal names are merged.

    :param names: of the samples that are read; empty for all.
    """
    with suppress(TimeoutError):  # a busy loop is not waited for
        service.loop.run(_record_steps(service), LOOP_WITHIN)
    further = [] if service.models is None else [engine.metrics_registry for engine in service.models.engines()]
    families: dict[str, Metric] = {}
    for registry in (REGISTRY, *(registry for registry in further if registry is not None)):
        for family in (registry.restricted_registry(names) if names else registry).collect():
            if family.name in families:
                families[family.name].samples += family.samples
            else:
                families[family.name] = family
    return families


async def _record_steps(service: Service) -> None:
    for engine in service.engines():
        engine.record_steps()


def _complete(families: dict[str, Metric], engine: Engine) -> None:
    name, unfinished = engine.base_names[0], engine.unfinished()
    waiting_in_core = sum(families[WAITING].samples[place].value for place in _places(families, WAITING, name))
    waiting = int(max(0, unfinished - engine.slots, min(waiting_in_core, unfinished)))
    running = unfinished - waiting
    exact = {RUNNING: running, WAITING: waiting} | ({} if unfinished else {KV_USE: 0})
    # A line without vLLM's own metrics has no prefix cache, and keeps one piece of the KV cache for each sequence.
    for metric, value in {KV_USE: running / engine.slots, HITS: 0, QUERIES: 0, **exact}.items():
        places = _places(families, metric, name)
        total = "_total" if metric in (HITS, QUERIES) else ""
        if not places:
            families[metric].samples.append(Sample(metric + total, {"model_name": name, "engine": "0"}, value))
        elif metric in exact and len(places) == 1:  # with several cores each has a value of its own
            families[metric].samples[places[0]] = families[metric].samples[places[0]]._replace(value=value)
    if LORA not in families:
        families[LORA] = GaugeMetricFamily(LORA, "Adapters of requests.")
        families[LORA].samples = [Sample(LORA, NO_LORA, time.time())]


def _places(families: dict[str, Metric], metric: str, model: str) -> list[int]:
    """Where the metric's values of a model are in its family, which takes those of its older name if it is new."""
    if metric not in families:
        older = OLDER_NAMES.get(metric, "")
        made = (CounterMetricFamily if metric in (HITS, QUERIES) else GaugeMetricFamily)(metric, "As vLLM has it.")
        samples = families[older].samples if older in families else []
        made.samples = [sample._replace(name=sample.name.replace(older, metric)) for sample in samples]
        families[metric] = made
    return [
        place
        for place, sample in enumerate(families[metric].samples)
        if sample.labels.get("model_name") == model and not sample.name.endswith("_created")
    ]
