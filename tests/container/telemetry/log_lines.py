"""The events of a JSON log."""

from __future__ import annotations

import json
import logging
from typing import Any

from container.telemetry.event_log import JsonFormatter
from tests.handler.waiting import eventually


class Lines(logging.Handler):
    """What a JSON log would hold."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def events(self, name: str, least: int = 1) -> list[dict[str, Any]]:
        """The events of this name. A request is logged in a thread, so this waits for the first ones.

        :param least: how many there will be.
        """
        eventually(lambda: len(self._events(name)) >= least)
        return self._events(name)

    def _events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in map(json.loads, list(self.lines)) if line["event"] == name]
