"""What the container has written: SageMaker sends it to CloudWatch, a stream for each instance."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from model_packaging.deployment.calls import found

# What `serve` prints when a stage has ended: "[  12.3 s] fetch model: 4.0 s".
STAGE = re.compile(r"^\[\s*([\d.]+) s\] (.+)$")
PAGES = 50
LATE = 60_000  # milliseconds


@dataclass(frozen=True, slots=True)
class LogLine:
    """:param time: milliseconds since the epoch. :param stream: variant/instance."""

    time: int
    stream: str
    text: str


def groups(endpoint: str, component: bool = False) -> str:
    return f"/aws/sagemaker/{'InferenceComponents' if component else 'Endpoints'}/{endpoint}"


class Log(Protocol):
    """What a container writes, read on from where it was last read."""

    def since(self, moment: int) -> None:
        """What is older (milliseconds since the epoch) belongs to an earlier start, and is not looked at."""
        ...

    def new(self) -> list[LogLine]:
        """The lines that came since, by time."""
        ...


class ContainerLog:
    """A log group, read on from where it was last read. A group that does not exist yet is empty.

    :param start: milliseconds since the epoch; what is older is not looked at.
    :param prefix: of the streams to read; all of them unless given.
    """

    def __init__(self, logs: Any, group: str, start: int = 0, prefix: str = "") -> None:
        self._logs, self.group, self._start = logs, group, start
        self._only = {"logStreamNamePrefix": prefix} if prefix else {}
        self._seen: set[str] = set()

    def since(self, moment: int) -> None:
        self._start = max(self._start, moment)

    def new(self) -> list[LogLine]:
        """The lines that came since, by time. CloudWatch shows them late and out of order: hence the ids."""
        lines = []
        for event in self._events():
            if event["eventId"] not in self._seen:
                self._seen.add(event["eventId"])
                lines.append(LogLine(event["timestamp"], event["logStreamName"], as_text(event["message"].rstrip())))
        if lines:
            # Some seconds are read again each time, for what arrives late.
            self._start = max(self._start, max(line.time for line in lines) - LATE)
        return sorted(lines, key=lambda line: line.time)

    def _events(self) -> Iterator[dict[str, Any]]:
        token: dict[str, str] = {}
        for _ in range(PAGES):
            members = {"logGroupName": self.group, "startTime": self._start, **self._only, **token}
            page = found(self._logs.filter_log_events, **members)
            if page is None:
                return
            yield from page.get("events", [])
            if not page.get("nextToken"):
                return
            token = {"nextToken": page["nextToken"]}


def as_text(line: str) -> str:
    """A line of the container's JSON log (docs/observability.md) as the text log has it; any other line as it is."""
    if not line.startswith('{"time"'):
        return line
    try:
        event = json.loads(line)
        message = str(event["message"])
        if "since_start_seconds" in event:
            return f"[{float(event['since_start_seconds']):6.1f} s] {message.partition(chr(10))[0]}"
        return f"{str(event['level']).upper()} {event['logger']}: {message}"
    except (ValueError, KeyError, TypeError):
        return line


def stage_of(lines: list[LogLine]) -> str:
    """What the container did last, by its own account; empty when it has not said anything."""
    for line in reversed(lines):
        if match := STAGE.match(line.text):
            return f"{match[2]} (at {match[1]} s)"
    return ""
