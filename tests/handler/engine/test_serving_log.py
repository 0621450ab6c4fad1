"""What vLLM's lines about requests leave in the log."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from handler.engine.v1.serving import serving_log

WRITTEN = "my card is 4111 1111"
PARSER = "vllm.tool_parsers.seed_oss_tool_parser"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What vLLM's handler prints."""
    printed = io.StringIO()
    handler = logging.StreamHandler(printed)
    handler.setFormatter(logging.Formatter("%(levelname)s %(filename)s %(message)s"))
    handlers = (logging.StreamHandler(io.StringIO()), handler)
    for each in handlers:
        logging.getLogger("vllm").addHandler(each)
    serving_log.shorten_errors()
    yield printed
    for each in handlers:
        logging.getLogger("vllm").removeHandler(each)


@pytest.mark.parametrize("name", [PARSER, "vllm.reasoning.x", "vllm.parser.x", "vllm.connections"])
def test_what_a_model_wrote_is_not_in_the_log(log: io.StringIO, name: str) -> None:
    logger = logging.getLogger(name)
    logger.warning("Parsed value '%s' of parameter '%s' is not an integer", WRITTEN, "amount")
    try:
        raise ValueError(WRITTEN)
    except ValueError as error:
        logger.exception(f"Error in streaming tool calls: {error}")  # as a parser does
    assert WRITTEN not in log.getvalue()
    first, second = log.getvalue().splitlines()
    assert first.startswith("WARNING test_serving_log.py")
    assert second.endswith("(ValueError)")


def test_why_a_parser_cannot_be_loaded_is(log: io.StringIO) -> None:
    logging.getLogger("vllm.tool_parsers.abstract_tool_parser").error("Failed to load module '%s'", "mine")
    assert log.getvalue().endswith("Failed to load module 'mine'\n")


def test_a_clients_error_is_one_line(log: io.StringIO) -> None:
    try:
        raise ValueError(WRITTEN)
    except ValueError:
        logging.getLogger("vllm.entrypoints.x").exception("Error in preprocessing prompt inputs")
    assert log.getvalue() == "ERROR test_serving_log.py Error in preprocessing prompt inputs (ValueError)\n"


@pytest.fixture
def dump() -> Callable[..., None]:
    from vllm.logging_utils import dump_input  # its import sets up vLLM's handlers

    return dump_input.dump_engine_exception  # type: ignore[no-any-return]


def test_what_a_failing_core_dumps_has_no_text_of_requests(dump: Callable[..., None], log: io.StringIO) -> None:
    from handler.engine.engine_client.processes import process_plugin

    process_plugin.leave_out_dumped_requests()
    dump("the configuration", SimpleNamespace(stop=[WRITTEN]), None)
    assert "the configuration" in log.getvalue()
    assert WRITTEN not in log.getvalue()
