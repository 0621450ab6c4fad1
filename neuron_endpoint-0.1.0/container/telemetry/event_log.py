"""The format of the log: text for a terminal, or one JSON object a line (fields: docs/observability.md).

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
MAX_TEXT = 32 * 1024


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON line. Long texts are cut: CloudWatch cuts an event at 256 KiB."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "log"),
            "logger": record.name,
            "message": record.getMessage()[:MAX_TEXT],
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, Mapping):
            line.update({name: value for name, value in fields.items() if value is not None})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)[-MAX_TEXT:]
        return json.dumps(line, default=str, ensure_ascii=False)


def event(logger: logging.Logger, name: str, message: str, fields: Mapping[str, Json]) -> None:
    """Logs one event at level INFO. A text log shows its message only."""
    logger.info("%s", message, extra={"event": name, "fields": fields})


def json_wanted(config: EndpointConfig, environ: Mapping[str, str] = os.environ, terminal: bool | None = None) -> bool:
    """Whether the log is JSON. Without a setting: in a container, but not in a terminal or under `make serve`."""
    if config.log_format is not None:
        return config.log_format == "json"
    terminal = sys.stderr.isatty() if terminal is None else terminal
    return not terminal and "SAGEMAKER_BASE_DIR" not in environ


def logs_requests(config: EndpointConfig) -> bool:
    """Whether the begin and the end of each request are logged."""
    return json_wanted(config) if config.log_requests is None else config.log_requests


def use(config: EndpointConfig) -> None:
    """Sets the format of the process's log. Called once the settings are read."""
    formatter = JsonFormatter() if json_wanted(config) else logging.Formatter(TEXT)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter)
