"""CloudWatch metrics without an agent: lines in Embedded Metric Format on stdout, if ENDPOINT_EMF is set.

Format: "Specification: Embedded metric format", Amazon CloudWatch User Guide: a root object with `_aws` (`Timestamp` in
milliseconds, `CloudWatchMetrics` with `Namespace`, `Dimensions`, `Metrics`) and the values as members, each a number or
a list of up to 100.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence

from container.requests.request_record import RequestRecord
from container.telemetry.request_metrics import end_of
from handler.errors.base import one_line

NAMESPACE = "NeuronEndpoint"
SECONDS = 60.0
# The most values that one metric may have in one document.
MAX_VALUES = 100
MAX_MODEL = 1024


class EmbeddedMetrics:
    """Collects the requests of a minute, or a hundred requests, into one document. Thread-safe.

    :param model: the dimension `Model`. Every metric also exists without a dimension.
    :param in_flight: reads the number of requests in flight.
    """

    def __init__(
        self, model: str, in_flight: Callable[[], int], write: Callable[[str], object] = lambda line: _print(line)
    ) -> None:
        self._model, self._in_flight, self._write = model, in_flight, write
        self._lock = threading.Lock()
        self._ended: list[tuple[RequestRecord, float]] = []

    def begin(self) -> None:
        """Starts the thread that writes once a minute, also without requests: zero differs from no data."""
        threading.Thread(target=self._run, name="emf", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(SECONDS)
            self.flush()

    def observe(self, record: RequestRecord, seconds: float) -> None:
        with self._lock:
            self._ended.append((record, seconds))
            full = len(self._ended) >= MAX_VALUES
        if full:
            self.flush()

    def flush(self) -> None:
        """Writes the collected requests."""
        with self._lock:
            ended, self._ended = self._ended[:MAX_VALUES], self._ended[MAX_VALUES:]
        self._write(document(ended, self._model, self._in_flight(), time.time()))


def document(ended: Sequence[tuple[RequestRecord, float]], model: str, in_flight: int, now: float) -> str:
    """One document with up to a hundred requests.

    :param ended: each request with its duration in seconds.
    :param now: seconds since the epoch.
    """
    records = [record for record, _ in ended]
    values: dict[str, float | list[float]] = {
        "Requests": len(records),
        "ClientErrors": sum(400 <= record.status < 500 for record in records),
        "ServerErrors": sum(record.status >= 500 for record in records),
        "ClientsLeft": sum(end_of(record) == "client_left" for record in records),
        "PromptTokens": sum(record.prompt_tokens or 0 for record in records),
        "OutputTokens": sum(record.output_tokens or 0 for record in records),
        "RequestsInFlight": in_flight,
        "RequestTime": [_ms(seconds) for _, seconds in ended],
        "TimeToFirstToken": [
            _ms(record.first_token_seconds) for record in records if record.first_token_seconds is not None
        ],
        "TimeBetweenTokens": [_ms(record.between_tokens) for record in records if record.between_tokens is not None],
    }
    values = {name: value for name, value in values.items() if value != []}
    # Each list has times in milliseconds, each number is a count.
    metrics = [
        {"Name": name, "Unit": "Milliseconds" if isinstance(value, list) else "Count"} for name, value in values.items()
    ]
    about = {"Namespace": NAMESPACE, "Dimensions": [["Model"], []], "Metrics": metrics}
    model = one_line(model).encode("ascii", "replace").decode()[:MAX_MODEL]  # all that a dimension's value may be
    return json.dumps({"_aws": {"Timestamp": int(now * 1000), "CloudWatchMetrics": [about]}, "Model": model, **values})


def _ms(seconds: float | None) -> float:
    return round((seconds or 0.0) * 1000, 3)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
