"""Records how a start got its artifacts: as events in the log and as metrics."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from handler.artifacts.restore.restore import Restored
from handler.json_value import Json

# Labels of a miss without an entry to compare with, and of a miss in a store that cannot be listed.
EMPTY, UNLISTED = "(empty store)", "(not listed)"
# Limits of the length of a field name, which comes from a manifest, and of the field names of one miss.
MAX_NAME, MAX_FIELDS = 80, 12
PREFIX = "endpoint_artifact"


class ArtifactMetrics:
    """Counts since this process began. Thread-safe, because a lease is renewed in a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.hits = self.misses = 0
        self.miss_fields: Counter[str] = Counter()
        self.restored_bytes = 0
        self.restore_seconds = self.restore_rate = self.compile_seconds = self.wait_seconds = 0.0
        self.events: Counter[str] = Counter()

    def record(self, event: Mapping[str, Json]) -> None:
        """Counts an event of `Acquisition`, and prints it to the log as one line of JSON."""
        with self._lock:
            match event.get("event"):
                case "artifact_restored":
                    self.hits += 1
                case "artifact_miss":
                    self.misses += 1
                    self.miss_fields.update(_reasons(event))
                case other:
                    self.events[str(other)] += 1
        sys.stdout.write(json.dumps(dict(event), default=str) + "\n")
        sys.stdout.flush()

    def restored(self, done: Restored) -> None:
        with self._lock:
            self.restored_bytes += done.fetched
            self.restore_seconds += done.seconds
            if done.fetched and done.seconds:  # a restore that found every file in place has no rate
                self.restore_rate = done.fetched / done.seconds

    def compiled(self, seconds: float) -> None:
        with self._lock:
            self.compile_seconds += seconds

    def waited(self, seconds: float) -> None:
        with self._lock:
            self.wait_seconds += seconds

    def families(self) -> Iterator[Metric]:
        """The metrics, for a collector of prometheus_client."""
        with self._lock:
            counters = (
                ("hits", "Artifacts found in the store and restored.", self.hits),
                ("misses", "Artifacts that the store did not have.", self.misses),
                ("restore_bytes", "Bytes that restores fetched.", self.restored_bytes),
                ("restore_seconds", "Seconds that restores took.", self.restore_seconds),
                ("compile_seconds", "Seconds that engines took to start where they compiled.", self.compile_seconds),
                ("lease_wait_seconds", "Seconds spent waiting for another instance's compile.", self.wait_seconds),
            )
            for name, text, value in counters:
                yield CounterMetricFamily(f"{PREFIX}_{name}", text, value)
            yield GaugeMetricFamily(
                f"{PREFIX}_restore_bytes_per_second", "Rate of the last restore.", self.restore_rate
            )
            differing = "Misses by the fields in which the nearest entry differs."
            yield _labelled("miss_fields", differing, "field", self.miss_fields)
            yield _labelled("events", "What else happened, by event.", "event", self.events)


def _labelled(name: str, text: str, label: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family


def _reasons(event: Mapping[str, Json]) -> list[str]:
    if "problem" in event:
        return [UNLISTED]
    fields = event.get("fields")
    if not isinstance(fields, list) or not fields:
        return [EMPTY]
    return [str(field)[:MAX_NAME] for field in fields[:MAX_FIELDS]]
