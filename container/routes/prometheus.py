"""GET /metrics: vLLM's metrics and the container's own, as Prometheus text.

SageMaker's detailed observability scrapes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from flask import Blueprint, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from container.routes import neuron_metrics
from container.routes.picker_metrics import picker_metrics
from container.service import Service
from handler.startup.lifecycle import Lifecycle, ServingStatus
from handler.startup.multi_model.model_registry import ModelState


class ServiceCollector:
    """Reads the values from the service at each scrape, so that there is no second copy to keep up to date."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        service = self._service
        tasks = service.loop.tasks()
        for name, text, value in (
            ("requests_in_flight", "Requests that were admitted and are not answered yet.", service.admission.count),
            ("requests_in_engine", "Requests that hold a slot of the engine or wait for one.", service.unfinished()),
            ("requests_queued", "Requests beyond the engine's slots.", service.queued()),
            ("loop_tasks", "Tasks in the event loop.", tasks),
        ):
            yield GaugeMetricFamily(f"endpoint_{name}", text, value)
        stages = GaugeMetricFamily(
            "endpoint_start_stage_seconds", "Seconds that each finished stage of the start took.", labels=["stage"]
        )
        stage_seconds: dict[str, float] = {}
        for stage, seconds in service.lifecycle.stages:
            stage_seconds[stage] = stage_seconds.get(stage, 0.0) + seconds
        for stage, seconds in stage_seconds.items():
            stages.add_metric([stage], seconds)
        yield stages
        yield from step_metrics(service.lifecycle)
        ready = service.lifecycle.status.state is ServingStatus.READY
        yield GaugeMetricFamily("endpoint_ready", "1 while requests are accepted.", int(ready))
        if service.models is not None:
            models = GaugeMetricFamily(
                "endpoint_model_up", "1 for an additional model that serves, 0 for one that failed.", labels=["model"]
            )
            for model in service.models.all():
                models.add_metric([model.name], int(model.state is ModelState.SERVING))
            yield models
        if service.config.artifact_store:
            yield from service.artifacts.families()
        if service.monitor is not None:
            yield from neuron_metrics.metrics(service.monitor)
        yield from picker_metrics(service)


def step_metrics(lifecycle: Lifecycle) -> Iterator[Metric]:
    """The steps of the start that run beside each other, while they run and afterwards."""
    labels = ["step"]
    seconds = GaugeMetricFamily(
        "endpoint_start_step_seconds", "Seconds that each step of the start has taken so far.", labels=labels
    )
    done = GaugeMetricFamily("endpoint_start_step_done_bytes", "Bytes that a running step has fetched.", labels=labels)
    total = GaugeMetricFamily("endpoint_start_step_total_bytes", "Bytes that a running step fetches.", labels=labels)
    now = time.monotonic()
    for step in lifecycle.steps.values():
        seconds.add_metric([step.name], (step.ended or now) - step.began)
        if step.total:
            done.add_metric([step.name], step.done)
            total.add_metric([step.name], step.total)
    yield from (seconds, done, total)


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("metrics", __name__)
    registry = CollectorRegistry()
    registry.register(ServiceCollector(service))

    @routes.get("/metrics")
    def metrics() -> Response:
        text = generate_latest(registry) + generate_latest(service.observer.registry)
        return Response(text, content_type=CONTENT_TYPE_LATEST)

    return routes
