"""The data of the page: the state, the timeline of the start, counters, and current values."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from container.routes.model_list import listed_models
from container.routes.picker_metrics import engine_families
from container.service import Service
from handler.neuron.buckets.padding import ASKED, COMPUTED
from handler.startup.lifecycle import Lifecycle, ServingStatus, Status, TimedStep

# vLLM's own gauges and counters (v1/metrics/loggers.py). Older Neuron lines have another name for the first.
KV_USE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
OUTPUT_TOKENS = "vllm:generation_tokens_total"
FIRST_SUM = "vllm:time_to_first_token_seconds_sum"
FIRST_COUNT = "vllm:time_to_first_token_seconds_count"
NAMES = (*KV_USE, OUTPUT_TOKENS, FIRST_SUM, FIRST_COUNT)


def page_state(service: Service) -> dict[str, object]:
    """The reply of GET /page/state. Times are in seconds, `kv_use` is from 0 to 1. None: there is no value yet."""
    status, engine = service.lifecycle.status, service.engine
    problem = engine.problem() if engine is not None and status.state is ServingStatus.READY else None
    state = status.state.value if problem is None else "stalled"
    seen = summed(engine_families(service, NAMES).values())
    unfinished, queued, engines = service.unfinished(), service.queued(), service.engines()
    requests = service.observer.recent
    return {
        "state": state,
        "reason": status.reason or problem or "",
        "waiting": status.waiting,
        "last_failure": service.last_failure,
        **stage_times(status, service.lifecycle.began),
        "timeline": timeline(service.lifecycle),
        "models": [{"id": model["id"], "parent": model["parent"]} for model in listed_models(service)],
        "images": any(engine.traits.multimodal for engine in engines),
        "sessions": service.sessions is not None,
        "last_request": requests[-1]["at"] if requests else None,
        "slots": sum(engine.slots for engine in engines) or None,
        "in_flight": service.admission.count,
        "running": max(0, unfinished - queued),
        "queued": queued,
        "kv_use": next((seen[name] / max(1, len(engines)) for name in KV_USE if name in seen), None),
        "output_tokens": seen.get(OUTPUT_TOKENS),
        "first_token_sum": seen.get(FIRST_SUM),
        "first_token_count": seen.get(FIRST_COUNT),
        "padding": padding_shares(service.observer.registry),
    }


def padding_shares(registry: CollectorRegistry) -> dict[str, float]:
    """The share of the computed tokens that is padding, by phase."""
    tokens: dict[tuple[str, str], float] = {}
    for family in registry.collect():
        for sample in family.samples:
            if sample.name in (ASKED, COMPUTED):
                key = sample.name, sample.labels["phase"]
                tokens[key] = tokens.get(key, 0.0) + sample.value
    computed = {phase: value for (name, phase), value in tokens.items() if name == COMPUTED and value}
    return {phase: round(1 - tokens[ASKED, phase] / value, 4) for phase, value in computed.items()}


def stage_times(status: Status, began: float) -> dict[str, object]:
    """The stage of the start, and for how many seconds the stage and the whole start have lasted.

    :param began: monotonic seconds at which the start began.
    """
    now = time.monotonic()
    return {
        "stage": status.stage,
        "stage_seconds": round(now - status.since, 1),
        "seconds": round(now - began, 1),
    }


def timeline(lifecycle: Lifecycle) -> list[dict[str, object]]:
    """The steps and stages of the start. `begin` and `end` are in seconds since it began; None: it runs."""
    return [
        {
            "step": step.name,
            "begin": round(step.began - lifecycle.began, 2),
            "end": None if step.ended is None else round(step.ended - lifecycle.began, 2),
            "waited_for": step.waited_for,
            **progress(step),
        }
        for step in lifecycle.timeline()
    ]


def progress(status: Status | TimedStep) -> dict[str, object]:
    """How much of a download is done."""
    return {"done_bytes": status.done, "total_bytes": status.total, "bytes_per_second": round(status.rate)}


def summed(families: Iterable[Metric]) -> Mapping[str, float]:
    """The value of each metric, summed over its labels."""
    values: dict[str, float] = {}
    for family in families:
        for sample in family.samples:
            values[sample.name] = values.get(sample.name, 0.0) + sample.value
    return values
