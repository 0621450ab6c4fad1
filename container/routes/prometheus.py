"""GET /metrics: Prometheus text, as SageMaker's detailed observability scrapes it. vLLM's own metrics, and ours."""

from __future__ import annotations

from collections.abc import Iterator

from flask import Blueprint, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from container.process_group import shared_metrics
from container.process_group.shared_state import Member
from container.routes import neuron_metrics
from container.routes.merged_engine_metrics import vllm_registry
from container.service import Service
from handler.startup.lifecycle import ServingStatus
from handler.startup.multi_model.loaded_model import ModelState


class ServiceCollector:
    """Reads the service at each scrape, so that there is no second copy of a figure to keep right."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        service = self._service
        yield GaugeMetricFamily(
            "endpoint_requests_in_flight", "Requests accepted and not yet answered.", service.admission.total
        )
        unfinished = service.unfinished()
        yield GaugeMetricFamily("endpoint_requests_in_engine", "Requests that hold or await a slot.", unfinished)
        yield GaugeMetricFamily("endpoint_requests_queued", "Requests beyond the engine's slots.", service.queued())
        tasks = sum(engine.loop.tasks() for engine in service.engines())
        yield GaugeMetricFamily("endpoint_loop_tasks", "Tasks of the engines' event loops.", tasks)
        stages = GaugeMetricFamily(
            "endpoint_start_stage_seconds", "Seconds that each finished stage of the start took.", labels=["stage"]
        )
        spent: dict[str, float] = {}
        for stage, seconds in service.lifecycle.stages:
            spent[stage] = spent.get(stage, 0.0) + seconds
        for stage, seconds in spent.items():
            stages.add_metric([stage], seconds)
        yield stages
        ready = service.lifecycle.status.state is ServingStatus.READY
        yield GaugeMetricFamily("endpoint_ready", "1 when requests are taken.", int(ready))
        if service.models is not None:
            models = GaugeMetricFamily(
                "endpoint_model_up",
                "1 for a further model that serves, 0 for one that failed.",
                labels=["model"],
            )
            for model in service.models.all():
                models.add_metric([model.name], int(model.state is ModelState.SERVING))
            yield models
        if service.peers is not None:
            shared_state = service.peers.shared_state
            serving = len(shared_state.members(Member.SERVING))
            yield GaugeMetricFamily("endpoint_front_ends", "Processes that answer requests.", serving)
            ended = CounterMetricFamily("endpoint_front_ends_ended", "Of these, those that ended and were replaced.")
            ended.add_metric([], len(shared_state.members(Member.RELEASED)))
            yield ended
        if service.config.artifact_store:
            yield from service.artifacts.families()
        if service.monitor is not None:
            yield from neuron_metrics.metrics(service.monitor)


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("metrics", __name__)
    ours = CollectorRegistry()
    ours.register(ServiceCollector(service))

    @routes.get("/metrics")
    def metrics() -> Response:
        if service.peers is not None:
            all_processes = shared_metrics.summed(service.peers.context)
            return Response(generate_latest(ours) + generate_latest(all_processes), content_type=CONTENT_TYPE_LATEST)
        own = generate_latest(ours) + generate_latest(service.observer.registry)
        return Response(own + generate_latest(vllm_registry(service)), content_type=CONTENT_TYPE_LATEST)

    return routes
