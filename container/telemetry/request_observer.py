"""Hears of each request: when it is taken, and when its reply's last byte is out. Log, /metrics and EMF are told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flask import Flask, request
from prometheus_client import CollectorRegistry, Counter
from werkzeug.wsgi import ClosingIterator

from container.connection.gunicorn_connection import GunicornConnection
from container.requests.request_record import KEY, RequestRecord, record_of
from container.telemetry.embedded_metrics import EmbeddedMetrics
from container.telemetry.event_log import event, logs_requests
from container.telemetry.request_metrics import RequestMetrics, end_of
from handler.config.endpoint_config import EndpointConfig
from handler.json_value import Json

if TYPE_CHECKING:  # it imports OpenTelemetry
    from container.telemetry.tracing.tracer import RequestTracer

logger = logging.getLogger(__name__)
LONGEST_BODY = 16 * 1024
# Asked for every few seconds by others than clients.
QUIET = frozenset(("/ping", "/metrics", "/page/state"))


class RequestObserver:
    """One for each serving process. Thread-safe. Only what writes a log may wait; the engine's loop calls the rest.

    :ivar registry: our own figures of requests.
    :ivar direct, handed_on: count requests that the engine's loop answers by itself, and those it leaves to a thread.
    :ivar logs: each request's begin and end are logged.
    """

    def __init__(
        self, config: EndpointConfig, in_flight: Callable[[], int], tracer: RequestTracer | None = None
    ) -> None:
        self.registry = CollectorRegistry()
        ways = Counter(
            "endpoint_request_ways",
            "Requests that came to the engine's loop, by who answered.",
            ["way"],
            registry=self.registry,
        )
        self.direct, self.handed_on = ways.labels("loop"), ways.labels("thread")
        self._figures = RequestMetrics(self.registry)
        self.logs = logs_requests(config)
        self._prompts = config.log_prompts
        self.tracer = tracer
        self.emf = EmbeddedMetrics((config.served_model_name or (config.model,))[0], in_flight) if config.emf else None

    def began(self, record: RequestRecord, environ: Mapping[str, Any]) -> None:
        """A request's headers are here."""
        if self.tracer is not None:
            self.tracer.began(record, environ)

    def started(self, record: RequestRecord, body: bytes) -> None:
        """A request was taken. Its body is logged only where the settings ask for that."""
        record.named()
        if not self.logs:
            return
        fields: dict[str, Json] = {**_ids(record), "stream": record.stream, "prompt_tokens": record.prompt_tokens}
        if self._prompts:
            fields["body"] = body[:LONGEST_BODY].decode("utf-8", "replace")
        event(logger, "request_start", f"{record.request_id} {record.route}", fields)

    def ended(self, record: RequestRecord, seconds: float | None = None) -> None:
        """:param seconds: that it took, where it has ended before now."""
        seconds = record.seconds() if seconds is None else seconds
        if self.tracer is not None:
            self.tracer.ended(record)
        self._figures.observe(record, seconds)
        if self.emf is not None and record.method == "POST":
            self.emf.observe(record, seconds)
        if not self.logs or record.route in QUIET:
            return
        end, first = end_of(record), record.first_token_seconds
        fields: dict[str, Json] = {
            **_ids(record),
            "status": record.status,
            "stream": record.stream,
            "prompt_tokens": record.prompt_tokens,
            "output_tokens": record.output_tokens,
            "first_token_seconds": None if first is None else round(first, 4),
            "between_tokens_seconds": None if record.between_tokens is None else round(record.between_tokens, 5),
            "seconds": round(seconds, 4),
            "end": end,
            "error_code": record.error,
            "left": record.left,
        }
        tokens = "" if record.output_tokens is None else f", {record.output_tokens} tokens"
        name = record.request_id or "(no id)"
        event(logger, "request_end", f"{name} {record.route} {record.status} {end}, {seconds:.3f} s{tokens}", fields)


class ObservedResponse:
    """The WSGI application, with a record for each request that is told of when the server closes the reply."""

    def __init__(self, application: Callable[..., Iterable[bytes]], observer: RequestObserver) -> None:
        self.application = application
        self._observer = observer

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        record = environ[KEY] = RequestRecord(environ)
        self._observer.began(record, environ)
        gunicorn = GunicornConnection.of(environ, start_response)

        def noted(status: str, headers: Any, exc_info: Any = None) -> Any:
            record.status = int(status[:3])
            return start_response(status, headers, exc_info)

        def ended() -> None:
            if gunicorn is not None:
                record.status = gunicorn.status
            self._observer.ended(record)

        # gunicorn's is handed on as it is: the connection is found by it.
        body = self.application(environ, noted if gunicorn is None else start_response)
        return ClosingIterator(body, ended)


def observe(app: Flask, observer: RequestObserver) -> None:
    """Puts the observer around an application."""

    def route() -> None:
        rule = request.url_rule
        record_of(request.environ).route = rule.rule if rule is not None else "(none)"

    app.before_request(route)
    app.wsgi_app = ObservedResponse(app.wsgi_app, observer)  # type: ignore[method-assign]


def _ids(record: RequestRecord) -> dict[str, Json]:
    return {
        "request_id": record.request_id or None,
        "trace_id": record.trace_id,
        "inference_id": record.inference_id,
        "method": record.method,
        "route": record.route,
        **record.headers,
        "custom_attributes": {**record.attributes} or None,
    }
