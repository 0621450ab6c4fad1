"""vLLM's serving classes log what a client sends wrongly, with tracebacks: here that is not news, nor fit for a log."""

from __future__ import annotations

import logging

# Of requests: a client could fill the log with them, and with what it sent.
PREFIX = "vllm.entrypoints."
IGNORED_FIELDS = "vllm.entrypoints.openai.engine.protocol"


class _NoTraceback(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(PREFIX) or record.levelno < logging.WARNING:
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
