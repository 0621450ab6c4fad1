"""The log: text for a terminal, or one JSON object a line for whatever collects it (fields: docs/observability.md).

An event is a log record with `extra={"event": name, "fields": {...}}`; any other record is the event `log`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from handler.config.endpoint_config import EndpointConfig
from handler.json_value import Json

TEXT = "%(levelname)s %(name)s: %(message)s"
LONGEST = 32 * 1024


class JsonFormatter(logging.Formatter):
    """A record as one line. CloudWatch cuts an event at 256 KiB: long texts are cut before."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "log"),
            "logger": record.name,
            "message": record.getMessage()[:LONGEST],
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, Mapping):
            line.update({name: value for name, value in fields.items() if value is not None})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)[-LONGEST:]
        return json.dumps(line, default=str, ensure_ascii=False)


def event(logger: logging.Logger, name: str, message: str, fields: Mapping[str, Json]) -> None:
    """One event at level INFO. In a text log its message is what is seen."""
    logger.info("%s", message, extra={"event": name, "fields": fields})


def json_wanted(config: EndpointConfig, environ: Mapping[str, str] = os.environ, terminal: bool | None = None) -> bool:
    """As asked for; else JSON in a container as SageMaker starts it, and text in a terminal and under `make serve`."""
    if config.log_format is not None:
        return config.log_format == "json"
    terminal = sys.stderr.isatty() if terminal is None else terminal
    return not terminal and "SAGEMAKER_BASE_DIR" not in environ


def logs_requests(config: EndpointConfig) -> bool:
    return json_wanted(config) if config.log_requests is None else config.log_requests


def use(config: EndpointConfig) -> None:
    """Sets what the process's log looks like, before anything but the settings has been read."""
    formatter = JsonFormatter() if json_wanted(config) else logging.Formatter(TEXT)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter)
