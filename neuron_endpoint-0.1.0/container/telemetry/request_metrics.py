"""Request metrics for /metrics. Each request is observed once, at its end, in the thread that answered it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram

from container.requests.request_record import RequestRecord
from handler.neuron.buckets.padding import ASKED, COMPUTED, PaddedTokens

# Seconds.
DURATIONS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 240.0, 480.0)
FIRST_TOKENS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2)
BETWEEN_TOKENS = (0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.2, 0.4, 0.8, 1.6)

Metric = TypeVar("Metric", Counter, Histogram)


class RequestMetrics:
    """Counters and histograms by route. Thread-safe, as prometheus_client's are."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._children: dict[tuple[object, ...], Any] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, ("route", *labels), registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, ("route",), buckets=buckets, registry=registry)

        self._requests = counter("endpoint_requests", "Answered requests, by route and status.", "status")
        self._end_reasons = counter("endpoint_request_ends", "How requests for tokens ended.", "end")
        self._durations = histogram(
            "endpoint_request_seconds", "Seconds from a request's headers to its reply's last byte.", DURATIONS
        )
        self._first = histogram(
            "endpoint_first_token_seconds", "Seconds from a stream's request to its first token.", FIRST_TOKENS
        )
        self._between = histogram(
            "endpoint_between_tokens_seconds", "Mean seconds between two tokens, one value a stream.", BETWEEN_TOKENS
        )
        self._prompt = counter("endpoint_prompt_tokens", "Prompt tokens of answered requests.")
        self._output = counter("endpoint_output_tokens", "Tokens made for answered requests.")
        self._asked, self._computed = (
            Counter(name, text, ("phase", "bucket"), registry=registry)
            for name, text in (
                (ASKED, "Tokens of prompts, and of context over all decode steps, by bucket."),
                (COMPUTED, "The same after padding to the bucket."),
            )
        )

    def observe(self, record: RequestRecord, seconds: float) -> None:
        """Counts a request that has ended.

        :param seconds: its duration.
        """
        route = record.route
        self._child(self._requests, route, str(record.status)).inc()
        if not record.request_id:
            return
        self._child(self._end_reasons, route, end_of(record)).inc()
        self._child(self._durations, route).observe(seconds)
        if record.first_token_seconds is not None:
            self._child(self._first, route).observe(record.first_token_seconds)
        if record.between_tokens is not None:
            self._child(self._between, route).observe(record.between_tokens)
        if record.prompt_tokens:
            self._child(self._prompt, route).inc(record.prompt_tokens)
        if record.output_tokens:
            self._child(self._output, route).inc(record.output_tokens)

    def observe_padding(self, padded: Iterable[PaddedTokens]) -> None:
        """Counts the tokens of a request by phase and bucket."""
        for one in padded:
            self._child(self._asked, one.phase, str(one.bucket)).inc(one.asked)
            self._child(self._computed, one.phase, str(one.bucket)).inc(one.computed)

    def _child(self, metric: Metric, *labels: str) -> Metric:
        """`metric.labels(...)`, cached: each call of it takes a lock and converts the labels to strings."""
        key = (metric, *labels)
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = metric.labels(*labels)
        return found


def end_of(record: RequestRecord) -> str:
    """How a request ended: a finish reason (`stop`, `length` ...), an error's class or `client_left`.

    Without any of these: `answered` or `refused`, by the status.
    """
    if record.left is not None:
        return "client_left"
    return record.end or ("answered" if record.status < 400 else "refused")
