"""vLLM's serving classes log what a client sends wrongly, with tracebacks: here that is not news, nor fit for a log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

# Of requests: a client could fill the log with them, and with what it sent.
PREFIXES = ("vllm.entrypoints.", "vllm.renderers.")
IGNORED_FIELDS = "vllm.entrypoints.openai.engine.protocol"


class _NoTraceback(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(PREFIXES) or record.levelno < logging.WARNING:
            return True
        if record.name == IGNORED_FIELDS:
            return False
        if record.exc_info:
            kind = record.exc_info[0]
            record.msg, record.args = "%s (%s)", (record.getMessage(), kind.__name__ if kind else "")
            record.exc_info = record.exc_text = None
        return True


def quiet() -> None:
    """From now on vLLM's handlers print one line for such an error, without the request's text."""
    for handler in logging.getLogger("vllm").handlers:
        if not any(isinstance(found, _NoTraceback) for found in handler.filters):
            handler.addFilter(_NoTraceback())


@contextmanager
def root_kept() -> Iterator[None]:
    """The root logger stays as it is, though a package that vLLM's API server imports sets it to ERROR and with it
    silences the whole process (model_hosting_container_standards, logging_config.py; seen with 0.1)."""
    root = logging.getLogger()
    level, levels = root.level, [(handler, handler.level) for handler in root.handlers]
    try:
        yield
    finally:
        root.setLevel(level)
        for handler, own in levels:
            handler.setLevel(own)
