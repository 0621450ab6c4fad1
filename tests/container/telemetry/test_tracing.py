"""Traces of real requests through the routes, sent by the real exporter to a receiver that reads the wire format."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from container.service import Service
from container.telemetry.tracing import tracer
from handler.config import tracing_settings as settings
from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from model_packaging.examination_report import examine
from tests.container.http_client import http_client
from tests.container.scripted_engine import ScriptedEngine, ready_service
from tests.otlp_receiver import Receiver, SeenSpan, receiving

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
CHAT = {"messages": [{"role": "user", "content": "secret|b|c"}], "max_tokens": 9, "temperature": 0.5}


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def traced(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch, url: str, **variables: str) -> Service:
    for name, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "20", **variables}.items():
        monkeypatch.setenv(name, value)
    return ready_service(EndpointConfig(model="scripted", log_requests=False), engine)


def one(spans: list[SeenSpan], name: str) -> SeenSpan:
    (found,) = [span for span in spans if span.name == name]
    return found


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_a_span_of_its_clients_trace(
    engine: ScriptedEngine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    service = traced(engine, monkeypatch, receiver.url)
    client = http_client(service)
    reply = client.post("/invocations", json={**CHAT, "stream": stream}, headers={"traceparent": TRACEPARENT})
    assert reply.status_code == 200
    assert b"secret" in reply.data
    reply.close()

    spans = receiver.spans(TRACE, 4)
    span = one(spans, "POST /invocations")
    assert (span.parent, span.service, span.status) == (PARENT, "neuron-endpoint", 0)
    attributes = span.attributes
    assert attributes["http.route"] == "/invocations"
    assert attributes["http.response.status_code"] == 200
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.response.model"] == "scripted"
    assert attributes["gen_ai.request.max_tokens"] == 9
    assert attributes["gen_ai.request.temperature"] == 0.5
    assert attributes["gen_ai.usage.output_tokens"] == 4
    assert attributes["gen_ai.usage.input_tokens"] > 0
    assert attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert attributes["gen_ai.response.id"] in reply.text
    assert attributes.get("gen_ai.request.stream", False) is stream
    assert "secret" not in str(spans)
    stages = [one(spans, name) for name in ("queue", "prefill", "decode")]
    assert {stage.parent for stage in stages} == {span.span}
    assert stages[0].end == stages[1].begin
    assert stages[1].end == stages[2].begin
    assert stages[0].begin < stages[2].end <= span.end
    assert receiver.paths == {"/v1/traces"}


@pytest.mark.parametrize(
    "headers",
    [
        {ATTRIBUTES: f"a=b;traceparent={TRACEPARENT}"},
        {ATTRIBUTES: f"X-Amzn-Trace-Id=Root=1-{TRACE[:8]}-{TRACE[8:]};Parent={PARENT};Sampled=1"},
        {"X-Amzn-Trace-Id": f"Root=1-{TRACE[:8]}-{TRACE[8:]};Parent={PARENT};Sampled=1"},
    ],
)
def test_the_trace_may_come_in_custom_attributes(
    engine: ScriptedEngine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    client = http_client(traced(engine, monkeypatch, receiver.url))
    client.post("/invocations", json=CHAT, headers=headers).close()
    assert one(receiver.spans(TRACE, 4), "POST /invocations").parent == PARENT


@pytest.mark.parametrize("given", ["", "x", f"00-{TRACE}-{PARENT}", "\x00", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_what_is_no_trace_context_begins_a_trace(
    engine: ScriptedEngine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    service = traced(engine, monkeypatch, receiver.url)
    environ = {"HTTP_TRACEPARENT": given}
    from container.requests.request_record import RequestRecord

    record = RequestRecord(environ)
    assert service.observer.tracer is not None
    service.observer.tracer.began(record, environ)
    service.observer.tracer.ended(record)
    trace = record.trace["traceparent"].split("-")[1]
    (span,) = receiver.spans(trace, 1)
    assert span.parent == ""


def test_an_error_says_its_code_and_no_message(
    engine: ScriptedEngine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = http_client(traced(engine, monkeypatch, receiver.url))
    header = {"traceparent": TRACEPARENT}
    client.post("/invocations", json={"messages": [{"role": "user", "content": "<fail>"}]}, headers=header).close()
    failed = one(receiver.spans(TRACE, 1), "POST /invocations")
    assert (failed.status, failed.attributes["error.type"]) == (2, "generation_failed")
    other = TRACE[::-1]
    client.post("/invocations", data="x", headers={"traceparent": f"00-{other}-{PARENT}-01"}).close()
    refused = one(receiver.spans(other, 1), "POST /invocations")
    assert (refused.status, refused.attributes["error.type"]) == (0, "unsupported_media_type")


def test_a_trace_that_is_not_sampled_is_not_sent(
    engine: ScriptedEngine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = http_client(traced(engine, monkeypatch, receiver.url))
    unsampled = TRACE[::-1]
    client.post("/invocations", json=CHAT, headers={"traceparent": f"00-{unsampled}-{PARENT}-00"}).close()
    client.post("/invocations", json=CHAT, headers={"traceparent": TRACEPARENT}).close()
    assert receiver.spans(TRACE, 4)
    assert receiver.spans(unsampled, 0) == []


def test_health_checks_are_no_spans(
    engine: ScriptedEngine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = http_client(traced(engine, monkeypatch, receiver.url, OTEL_SERVICE_NAME="mine"))
    for path in ("/ping", "/metrics"):
        client.get(path, headers={"traceparent": TRACEPARENT}).close()
    client.get("/v1/models", headers={"traceparent": TRACEPARENT}).close()
    (span,) = receiver.spans(TRACE, 1)
    assert (span.name, span.service) == ("GET /v1/models", "mine")


def test_the_last_spans_are_sent_when_the_process_ends(
    engine: ScriptedEngine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = traced(engine, monkeypatch, receiver.url, OTEL_BSP_SCHEDULE_DELAY="3600000")
    http_client(service).get("/v1/models", headers={"traceparent": TRACEPARENT}).close()
    service.observer.close()
    (span,) = receiver.spans(TRACE, 1)
    assert span.name == "GET /v1/models"


def test_a_collector_that_never_answers_delays_and_fails_nothing(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as deaf:  # connections are taken by the kernel, and nobody reads them
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        service = traced(engine, monkeypatch, url, OTEL_BSP_MAX_QUEUE_SIZE="8", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="8")
        client = http_client(service)
        assert {client.post("/invocations", json=CHAT).status_code for _ in range(60)} == {200}
        assert service.observer.tracer is not None
        monkeypatch.setattr(tracer, "LAST_SECONDS", 0.2)
        service.observer.tracer.stop()  # returns, whatever the exporter waits for


def test_a_collector_that_does_not_answer_is_complained_of_once_a_minute() -> None:
    seldom = tracer.RateLimitFilter(60)
    lines = [logging.makeLogRecord({"name": "exporter", "levelno": level}) for level in (30, 30, 40, 30)]
    assert [seldom.filter(line) for line in lines] == [True, False, True, False]
    assert tracer.RateLimitFilter(0).filter(lines[0])


def test_nothing_is_imported_where_nothing_is_configured() -> None:
    code = (
        "import sys; from container.service import Service; from container.application import create_app; "
        "from handler.config.endpoint_config import EndpointConfig; create_app(Service.of(EndpointConfig(model='m'))); "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, None),
    ],
)
def test_whether_traces_are_wanted(environ: dict[str, str], name: str | None) -> None:
    assert settings.enabled_by(environ) == name


def test_what_cannot_work_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(isolated: bool = False, **environ: Any) -> str:
        with pytest.raises(SettingError) as caught:
            settings.check({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", **environ}, isolated=isolated)
        return caught.value.message

    assert refused(OTEL_EXPORTER_OTLP_PROTOCOL="http/json").startswith("OTEL_EXPORTER_OTLP_PROTOCOL")
    assert "no network" in refused(isolated=True)
    monkeypatch.setitem(settings.EXPORTERS, "http/protobuf", "opentelemetry_missing.exporter")
    assert "not installed" in refused()
    settings.check({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", **GRPC}, isolated=True)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization: Bearer SECRET"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", '{"api-key":"SECRET"}'),
        ("OTEL_EXPORTER_OTLP_HEADERS", "ok=1,api-key=SECRET%0A"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://["),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "256"),  # below the batch of 512
        ("OTEL_ATTRIBUTE_COUNT_LIMIT", "x"),
    ],
)
def test_the_librarys_variables_are_checked_before_it_reads_them(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, variable: str, text: str
) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", variable: text}
    with pytest.raises(SettingError) as caught:
        settings.check(environ, isolated=False)
    assert caught.value.setting == variable
    assert "SECRET" not in caught.value.message + caplog.text
    examination = examine(environ, str(tmp_path), instance=None, line="cpu", fetch=lambda location: None)
    assert variable in {finding.setting for finding in examination.findings}


def test_values_of_the_library_that_work_start() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
        "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer abc==, x-team = a%20b,",
        "OTEL_BSP_MAX_QUEUE_SIZE": "256",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": " 256 ",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "",
    }
    settings.check(environ, isolated=False)
    assert "OTEL_EXPORTER_OTLP_TIMEOUT" not in environ
    settings.check({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317", **GRPC}, isolated=False)
    settings.check({"OTEL_EXPORTER_OTLP_HEADERS": "none", "OTEL_SDK_DISABLED": "true"}, isolated=False)
    refused = {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317", "OTEL_EXPORTER_OTLP_COMPRESSION": "none", **GRPC}
    with pytest.raises(SettingError, match="gzip"):
        settings.check(refused, isolated=False)


GRPC = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}


def test_vllms_own_exporter_is_told_the_protocol() -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    settings.check(environ, isolated=False)
    assert environ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == "http/protobuf"


def test_xray_without_a_parent_is_no_context() -> None:
    assert tracer.carrier({}, {"x-amzn-trace-id": f"Root=1-{TRACE[:8]}-{TRACE[8:]}"}) == {}
    assert tracer.carrier({"HTTP_TRACEPARENT": "a", "HTTP_TRACESTATE": "b" * 513}, {}) == {"traceparent": "a"}
