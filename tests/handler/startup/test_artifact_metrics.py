"""What /metrics and the log tell of artifacts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flask import Flask

from container.routes import prometheus as metrics
from container.service import Service
from handler.artifacts.restore.restore import Restored
from handler.config.endpoint_config import EndpointConfig
from handler.startup.artifact_metrics import ArtifactMetrics


def scraped(service: Service) -> str:
    app = Flask("test")
    app.register_blueprint(metrics.blueprint(service))
    return app.test_client().get("/metrics").text


def test_figures_are_scraped(tmp_path: Path) -> None:
    service = Service.of(EndpointConfig(artifact_store="file:///store"))
    metrics = service.artifacts
    metrics.record({"event": "artifact_miss", "fields": ["max_model_len", "neuronx-cc"]})
    metrics.record({"event": "artifact_miss", "fields": ["max_model_len"]})
    metrics.record({"event": "artifact_miss", "fields": []})
    metrics.record({"event": "artifact_miss", "problem": "AccessDenied"})
    metrics.record({"event": "artifact_restored", "keys": ["a"]})
    metrics.record({"event": "artifact_lease_lost"})
    metrics.restored(Restored(tmp_path, 100, 60, 40, 0, 2.0))
    metrics.compiled(7.5)
    metrics.waited(1.5)
    text = scraped(service)
    for line in (
        "endpoint_artifact_hits_total 1.0",
        "endpoint_artifact_misses_total 4.0",
        'endpoint_artifact_miss_fields_total{field="max_model_len"} 2.0',
        'endpoint_artifact_miss_fields_total{field="neuronx-cc"} 1.0',
        'endpoint_artifact_miss_fields_total{field="(empty store)"} 1.0',
        'endpoint_artifact_miss_fields_total{field="(not listed)"} 1.0',
        "endpoint_artifact_restore_bytes_total 60.0",
        "endpoint_artifact_restore_seconds_total 2.0",
        "endpoint_artifact_restore_bytes_per_second 30.0",
        "endpoint_artifact_compile_seconds_total 7.5",
        "endpoint_artifact_lease_wait_seconds_total 1.5",
        'endpoint_artifact_events_total{event="artifact_lease_lost"} 1.0',
    ):
        assert f"\n{line}\n" in text, line


def test_without_a_store_there_are_none() -> None:
    assert "endpoint_artifact" not in scraped(Service.of(EndpointConfig()))


def test_an_event_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    ArtifactMetrics().record({"event": "artifact_miss", "message": "two\nlines", "fields": ["x"]})
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["message"] for line in lines] == ["two\nlines"]


def test_a_manifest_cannot_fill_the_metrics() -> None:
    metrics = ArtifactMetrics()
    metrics.record({"event": "artifact_miss", "fields": ["x" * 10_000, *map(str, range(1000))]})
    assert len(metrics.miss_fields) <= 12
    assert all(len(name) <= 80 for name in metrics.miss_fields)
