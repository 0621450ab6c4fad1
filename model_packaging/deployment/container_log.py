"""Reads the container's log from CloudWatch, where SageMaker writes one stream for each instance."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from model_packaging.deployment.aws import unless_missing

# `serve` prints this when a stage has ended: "[  12.3 s] fetch model: 4.0 s".
STAGE = re.compile(r"^\[\s*([\d.]+) s\] (.+)$")
PAGES = 50
LATE = 60_000  # milliseconds


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log.

    :param time: milliseconds since the epoch.
    :param stream: variant/instance.
    """

    time: int
    stream: str
    text: str


def groups(endpoint: str, component: bool = False) -> str:
    return f"/aws/sagemaker/{'InferenceComponents' if component else 'Endpoints'}/{endpoint}"


class Log(Protocol):
    """A container's log that is read incrementally."""

    def since(self, moment: int) -> None:
        """Ignores lines before this time (milliseconds since the epoch): they belong to an earlier start."""
        ...

    def new(self) -> list[LogLine]:
        """Returns the lines since the last call, sorted by time."""
        ...


class ContainerLog:
    """A CloudWatch log group that is read incrementally. A group that does not exist yet is empty.

    :param start: milliseconds since the epoch. Older lines are ignored.
    :param prefix: the prefix of the streams to read. The default is all streams.
    :ivar cut: there was more than PAGES pages of it: the newest lines are missing.
    """

    def __init__(self, logs: Any, group: str, start: int = 0, prefix: str = "") -> None:
        self._logs, self.group, self._start = logs, group, start
        self._only = {"logStreamNamePrefix": prefix} if prefix else {}
        self._seen: set[str] = set()
        self.cut = False

    def since(self, moment: int) -> None:
        self._start = max(self._start, moment)

    def new(self) -> list[LogLine]:
        """Returns the lines since the last call, by time. CloudWatch is late and unordered, so ids are compared."""
        lines = []
        for event in self._events():
            if event["eventId"] not in self._seen:
                self._seen.add(event["eventId"])
                lines.append(LogLine(event["timestamp"], event["logStreamName"], as_text(event["message"].rstrip())))
        if lines:
            # Each call reads some seconds again, for lines that arrive late.
            self._start = max(self._start, max(line.time for line in lines) - LATE)
        return sorted(lines, key=lambda line: line.time)

    def _events(self) -> Iterator[dict[str, Any]]:
        token: dict[str, str] = {}
        for _ in range(PAGES):
            members = {"logGroupName": self.group, "startTime": self._start, **self._only, **token}
            page = unless_missing(self._logs.filter_log_events, **members)
            if page is None:
                return
            yield from page.get("events", [])
            if not page.get("nextToken"):
                return
            token = {"nextToken": page["nextToken"]}
        self.cut = True


def as_text(line: str) -> str:
    """Returns a line of the container's JSON log (docs/observability.md) as text. Other lines stay unchanged."""
    if not line.startswith('{"time"'):
        return line
    try:
        event = json.loads(line)
        message = str(event["message"])
        if event["event"] == "timeline":
            return line
        if "since_start_seconds" in event:
            return f"[{float(event['since_start_seconds']):6.1f} s] {message.partition(chr(10))[0]}"
        return f"{str(event['level']).upper()} {event['logger']}: {message}"
    except (ValueError, KeyError, TypeError):
        return line


def time_of(line: str) -> int:
    """Returns the time of a line of the container's JSON log, in milliseconds since the epoch; 0 for other lines."""
    moment = re.match(r'\{"time": "([^"]+)"', line)
    return int(datetime.fromisoformat(moment[1]).timestamp() * 1000) if moment else 0


def stage_of(lines: list[LogLine]) -> str:
    """Returns the last stage that the container logged, or an empty string."""
    for line in reversed(lines):
        if match := STAGE.match(line.text):
            return f"{match[2]} (at {match[1]} s)"
    return ""
