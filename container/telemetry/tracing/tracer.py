"""Makes a span for each request, with child spans for its stages in the engine. OpenTelemetry's exporter sends them.

Spans wait in a bounded queue (OTEL_BSP_MAX_QUEUE_SIZE, 2,048) for a thread that sends them. A slow or dead collector
loses spans and delays no request. This module imports OpenTelemetry: import it only where traces are wanted.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from container.requests.request_record import POLLED, RequestRecord
from container.telemetry.tracing.span_attributes import attributes_of, failed
from handler.config.tracing_settings import GRPC, protocol

NAME = "neuron-endpoint"
STAGES = ("queue", "prefill", "decode")
# Time for the last spans when the container ends.
LAST_SECONDS = 2.0
# The loggers that report an unreachable collector (opentelemetry-sdk and its exporters, 1.45): one line for each batch
# and attempt. One in so many seconds is passed.
LOGGERS = (
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
)
LOG_SECONDS = 60.0

# AWS X-Ray's header. Its parts are separated by semicolons, as custom attributes are ("Tracing header", X-Ray's guide).
XRAY: Final = "x-amzn-trace-id"
ROOT: Final = re.compile(r"1-([0-9a-f]{8})-([0-9a-f]{24})")
SPAN: Final = re.compile(r"[0-9a-f]{16}")
MAX_LENGTH: Final = 512


class RequestTracer:
    """Traces the requests of one serving process. Thread-safe."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        limit_exporter_logs()
        has_service_name = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        resource = Resource.create({} if has_service_name else {SERVICE_NAME: NAME})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_exporter(environ)))
        self._tracer = self._provider.get_tracer(NAME)
        self._propagator = TraceContextTextMapPropagator()

    def began(self, record: RequestRecord, environ: Mapping[str, Any]) -> None:
        """Starts the span: the request's headers have arrived."""
        if environ.get("PATH_INFO") in POLLED:
            return
        parent = self._propagator.extract(carrier(environ, record.attributes))
        span = self._tracer.start_span(record.method, parent, SpanKind.SERVER)
        record.span = span
        self._propagator.inject(record.trace, set_span_in_context(span))
        record.trace_id = record.trace_id or f"{span.get_span_context().trace_id:032x}"

    def ended(self, record: RequestRecord) -> None:
        """Ends the span: the reply's last byte was sent."""
        span = record.span
        if not isinstance(span, Span):
            return
        if span.is_recording():
            span.update_name(f"{record.method} {record.route}")
            span.set_attributes(attributes_of(record))
            if failed(record):
                span.set_status(Status(StatusCode.ERROR))
            self._stages(record, span)
        span.end()

    def _stages(self, record: RequestRecord, span: Span) -> None:
        """Adds the stages. The core's times are monotonic seconds, which all processes of a machine share."""
        if record.times is None:
            return
        offset = time.time_ns() - time.monotonic_ns()
        moments = [int(seconds * 1e9) + offset for seconds in record.times]
        context = set_span_in_context(span)
        for stage, begin, end in zip(STAGES, moments, moments[1:], strict=False):
            self._tracer.start_span(stage, context, start_time=begin).end(max(begin, end))

    def stop(self) -> None:
        """Sends the spans that are left, for at most `LAST_SECONDS`."""
        shutdown = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        shutdown.start()
        shutdown.join(LAST_SECONDS)


def _exporter(environ: Mapping[str, str]) -> SpanExporter:
    """The exporter. It reads address, headers, time-out and compression from the environment itself."""
    if protocol(environ) == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        return GrpcExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


class RateLimitFilter(logging.Filter):
    """Passes one line per logger and level in `seconds`."""

    def __init__(self, seconds: float = LOG_SECONDS) -> None:
        super().__init__()
        self._seconds = seconds
        self._last: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now, key = time.monotonic(), (record.name, record.levelno)
        last = self._last.get(key)
        if last is not None and now - last < self._seconds:
            return False
        self._last[key] = now
        return True


def limit_exporter_logs() -> None:
    """Installs the filter. Further calls in the same process do nothing."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(installed, RateLimitFilter) for installed in logger.filters):
            logger.addFilter(RateLimitFilter())


def carrier(environ: Mapping[str, Any], attributes: Mapping[str, str]) -> dict[str, str]:
    """Headers `traceparent`, and `tracestate` if there is one. Empty: the request begins a new trace.

    They come from W3C's headers, X-Ray's header or the custom attributes: SageMaker passes on only its own headers, so
    a client of InvokeEndpoint sends the context in `CustomAttributes`.

    :param environ: the WSGI environment.
    :param attributes: the custom attributes.
    """
    if environ.get("HTTP_TRACEPARENT"):
        headers = {name: str(environ.get(f"HTTP_{name.upper()}", "")) for name in ("traceparent", "tracestate")}
    elif attributes.get("traceparent"):
        headers = {name: attributes.get(name, "") for name in ("traceparent", "tracestate")}
    else:
        header = str(environ.get("HTTP_X_AMZN_TRACE_ID", ""))
        parts = dict(part.strip().partition("=")[::2] for part in header.split(";"))
        if not header and XRAY in attributes:
            parts = {"Root": attributes[XRAY].removeprefix("Root="), "Parent": attributes.get("parent", "")}
            parts["Sampled"] = attributes.get("sampled", "")
        headers = {"traceparent": traceparent_of_xray(parts)}
    return {name: value for name, value in headers.items() if value and len(value) <= MAX_LENGTH}


def traceparent_of_xray(parts: Mapping[str, str]) -> str:
    """A `traceparent` from the parts of X-Ray's header; empty if they name no span."""
    root, parent = ROOT.fullmatch(parts.get("Root", "").lower()), parts.get("Parent", "").lower()
    if root is None or not SPAN.fullmatch(parent):
        return ""
    return f"00-{root[1]}{root[2]}-{parent}-{'00' if parts.get('Sampled') == '0' else '01'}"
