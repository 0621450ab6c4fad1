"""Shortens the log lines that vLLM's serving classes write for a client's errors, and for replies it cannot parse.

vLLM logs a traceback for each of them. A client could fill the log, and its request's text would be in it. Parsers log
what the model wrote, too: the arguments of a tool call. A failed fetch of an image is logged with its URL, which may be
signed (vllm/connections.py, 0.24.0 to 0.32.0).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

# Loggers of vLLM that write lines about requests.
PARSERS = ("vllm.tool_parsers.", "vllm.reasoning.", "vllm.parser.")
WITHOUT_TEXT = (*PARSERS, "vllm.connections")
PREFIXES = ("vllm.entrypoints.", "vllm.renderers.", *WITHOUT_TEXT)
# They log why a parser cannot be loaded, and nothing of a reply (0.16.0 to 0.32.0).
LOADERS = (
    *("vllm.tool_parsers.abstract_tool_parser", "vllm.reasoning.abs_reasoning_parsers"),
    "vllm.parser.parser_manager",
)
SHORTENED = "shortened"
IGNORED_FIELDS = "vllm.entrypoints.openai.engine.protocol"


class _ShortLines(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(PREFIXES) or record.levelno < logging.WARNING or hasattr(record, SHORTENED):
            return True
        setattr(record, SHORTENED, True)  # several handlers get the same record
        if record.name == IGNORED_FIELDS:
            return False
        if record.name.startswith(WITHOUT_TEXT) and record.name not in LOADERS:
            record.msg, record.args = "a problem with a request or a reply, whose text is left out", ()
        if record.exc_info:
            kind = record.exc_info[0]
            record.msg, record.args = "%s (%s)", (record.getMessage(), kind.__name__ if kind else "")
            record.exc_info = record.exc_text = None
        return True


def shorten_errors() -> None:
    """Makes vLLM's handlers print one line for an error of a client or a parser, without the text that it is about."""
    for handler in logging.getLogger("vllm").handlers:
        if not any(isinstance(installed, _ShortLines) for installed in handler.filters):
            handler.addFilter(_ShortLines())


@contextmanager
def root_logger_kept() -> Iterator[None]:
    """Restores the levels of the root logger afterwards.

    A package that vLLM's API server imports sets them to ERROR, which silences the whole process
    (model_hosting_container_standards, logging_config.py; seen with 0.1).
    """
    root = logging.getLogger()
    level, levels = root.level, [(handler, handler.level) for handler in root.handlers]
    try:
        yield
    finally:
        root.setLevel(level)
        for handler, own in levels:
            handler.setLevel(own)
