"""Limits OpenTelemetry's log lines about an unreachable collector to one a minute.

OpenTelemetry logs one for each batch and attempt.
"""

from __future__ import annotations

import logging
import time

# The loggers that report it (opentelemetry-sdk and its exporters, 1.45).
LOGGERS = (
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
)
SECONDS = 60.0


class RateLimitFilter(logging.Filter):
    """Passes one line per logger and level in `seconds`."""

    def __init__(self, seconds: float = SECONDS) -> None:
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
        if not any(isinstance(found, RateLimitFilter) for found in logger.filters):
            logger.addFilter(RateLimitFilter())
