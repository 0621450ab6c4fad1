"""Reports the begin and the end of each request to the log, to /metrics, to EMF and to traces.

Whoever reads the log may be slow. So a request that is logged is reported in a thread of its own.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from container.requests.request_record import HANDED_OVER, POLLED, RequestRecord
from container.telemetry.embedded_metrics import EmbeddedMetrics
from container.telemetry.event_log import event, logs_requests
from container.telemetry.request_metrics import RequestMetrics, end_of
from handler.config.endpoint_config import EndpointConfig
from handler.json_value import Json
from handler.neuron.buckets.compiled_buckets import CompiledBuckets
from handler.neuron.buckets.padding import PREFILL, PaddedTokens, padded_tokens

if TYPE_CHECKING:  # it imports OpenTelemetry
    from container.telemetry.tracing.tracer import RequestTracer

logger = logging.getLogger(__name__)
MAX_LOGGED_BODY = 16 * 1024
MAX_IGNORED_NAMES = 256
# The latest requests that the page shows, and what it shows of each: never text.
RECENT = 50
RECENT_FIELDS = (
    "route",
    "status",
    "stream",
    "prompt_tokens",
    "output_tokens",
    "first_token_seconds",
    "between_tokens_seconds",
    "seconds",
    "end",
    "error_code",
)
# Time for the last log lines when the process ends.
LAST_SECONDS = 2.0


class RequestObserver:
    """Observes the requests of one serving process. Its methods are called on the loop, and block nobody.

    :ivar registry: the request metrics of this container, without vLLM's.
    :ivar recent: the latest POST requests, if the page is on; each with its end in Unix seconds (`at`).
    :ivar buckets: returns the buckets by which padding is counted; None before the engine has started.
    """

    def __init__(
        self, config: EndpointConfig, in_flight: Callable[[], int], tracer: RequestTracer | None = None
    ) -> None:
        self.registry = CollectorRegistry()
        self._metrics = RequestMetrics(self.registry)
        # Whoever reads standard output may be slow.
        writes = logs_requests(config) or config.emf
        self._thread = ThreadPoolExecutor(1, "request-log") if writes else None
        self._logs = logs_requests(config)
        self.recent: deque[dict[str, Json]] = deque(maxlen=RECENT if config.page else 0)
        self.buckets: Callable[[], CompiledBuckets | None] = lambda: None
        self._prompts = config.log_prompts
        self._ignored: set[str] = set()
        self.tracer = tracer
        self.emf = EmbeddedMetrics((config.served_model_name or (config.model,))[0], in_flight) if config.emf else None

    def began(self, record: RequestRecord, environ: Mapping[str, Any]) -> None:
        """The request's headers have arrived."""
        if self.tracer is not None:
            self.tracer.began(record, environ)

    def started(self, record: RequestRecord, body: bytes) -> None:
        """The request is valid and about to run. Its body is logged only if the settings say so."""
        record.assign_id()
        if self._thread is not None and self._logs:
            start = body[:MAX_LOGGED_BODY] if self._prompts else None  # the whole would outlive the request's bound
            self._thread.submit(_reported, partial(self._log_start, record, start))

    def _log_start(self, record: RequestRecord, body: bytes | None) -> None:
        fields: dict[str, Json] = {**_ids(record), "stream": record.stream, "prompt_tokens": record.prompt_tokens}
        if body is not None:
            fields["body"] = body.decode("utf-8", "replace")
        event(logger, "request_start", f"{record.request_id} {record.route}", fields)

    def _padded(self, record: RequestRecord) -> tuple[PaddedTokens, ...]:
        """The tokens of a request after padding; none if it had several sequences, or no token."""
        buckets = self.buckets()
        if buckets is None or not record.one_sequence or not record.prompt_tokens or not record.output_tokens:
            return ()
        return tuple(padded_tokens(buckets, record.prompt_tokens, record.output_tokens))

    def _log_ignored(self, record: RequestRecord) -> None:
        """Logs each field that has no effect once."""
        for name in record.ignored:
            if name not in self._ignored and len(self._ignored) < MAX_IGNORED_NAMES:
                self._ignored.add(name)
                logger.warning("a request to %s has the field '%s', which has no effect here", record.route, name)

    def ended(self, record: RequestRecord) -> None:
        """The reply's last byte was sent."""
        if self._thread is None:
            self._ended(record, record.seconds())
        else:
            self._thread.submit(_reported, partial(self._ended, record, record.seconds()))

    def close(self) -> None:
        """Writes the last log lines and the last line of EMF, and sends the last spans. Never called on the loop."""
        if self._thread is not None:
            last = self._thread.submit(lambda: None if self.emf is None else self.emf.flush())
            wait([last], LAST_SECONDS)
        if self.tracer is not None:
            self.tracer.stop()

    def _ended(self, record: RequestRecord, seconds: float) -> None:
        if self.tracer is not None:
            self.tracer.ended(record)
        self._log_ignored(record)
        self._metrics.observe(record, seconds)
        padded = self._padded(record)
        self._metrics.observe_padding(padded)
        if self.emf is not None and record.method == "POST" and record.end != HANDED_OVER:
            self.emf.observe(record, seconds)
        keeps = self.recent.maxlen and record.method == "POST"
        if record.route in POLLED or not (self._logs or keeps):
            return
        end, first = end_of(record), record.first_token_seconds
        fields: dict[str, Json] = {
            **_ids(record),
            "status": record.status,
            "stream": record.stream,
            "prompt_tokens": record.prompt_tokens,
            "output_tokens": record.output_tokens,
            **_padding(padded),
            "first_token_seconds": None if first is None else round(first, 4),
            "between_tokens_seconds": None if record.between_tokens is None else round(record.between_tokens, 5),
            "seconds": round(seconds, 4),
            "end": end,
            "error_code": record.error,
            "left": record.left,
        }
        if keeps:
            recent = {name: fields[name] for name in RECENT_FIELDS}
            self.recent.append({"at": time.time(), **recent, "request_id": record.request_id})
        if not self._logs:
            return
        tokens = "" if record.output_tokens is None else f", {record.output_tokens} tokens"
        name = record.request_id or "(no id)"
        event(logger, "request_end", f"{name} {record.route} {record.status} {end}, {seconds:.3f} s{tokens}", fields)


def _reported(report: Callable[[], None]) -> None:
    try:
        report()
    except Exception:  # nobody waits for the result
        logger.exception("a request cannot be reported")


def _padding(padded: Iterable[PaddedTokens]) -> dict[str, Json]:
    """The fields of the log: both phases, each in all its buckets."""
    prefill = [tokens for tokens in padded if tokens.phase == PREFILL]
    decode = [tokens for tokens in padded if tokens.phase != PREFILL]
    return {
        "prompt_tokens_computed": sum(tokens.computed for tokens in prefill) or None,
        "context_tokens": sum(tokens.asked for tokens in decode) or None,
        "context_tokens_computed": sum(tokens.computed for tokens in decode) or None,
    }


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
