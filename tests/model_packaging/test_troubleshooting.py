"""docs/troubleshooting.md quotes what the code says: each code with its status, each phrase, each variable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from container.routes.ping import STATUS
from handler import errors
from handler.config.fields import fields
from handler.startup.lifecycle import ServingStatus

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
PING, _, REQUESTS = PAGE.partition("## Replies of /ping")[2].partition("## A request that fails")
SOURCES = " ".join(
    path.read_text()
    for package in ("container", "handler", "model_packaging")
    for path in ROOT.glob(f"{package}/**/*.py")
)


def rows(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| status")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def classes(of: type[errors.EndpointError] = errors.EndpointError) -> Iterator[type[errors.EndpointError]]:
    for found in of.__subclasses__():
        yield found
        yield from classes(found)


@pytest.mark.parametrize("row", rows(REQUESTS), ids=lambda row: row[1][:40])
def test_each_code_has_its_status_and_each_quote_is_said(row: list[str]) -> None:
    codes = re.findall(r"`(\w+_\w+|starting|draining)`", row[1])
    assert codes
    said = {(found.code, str(getattr(found, "status", ""))) for found in classes()} | {("stream_cut", "")}
    assert {(code, row[0]) for code in codes} <= said
    for quote in re.findall(r"`([^`]+ [^`]+)`", row[1]):
        assert quote in SOURCES, quote


@pytest.mark.parametrize("row", rows(PING), ids=lambda row: row[1])
def test_each_state_of_ping(row: list[str]) -> None:
    status, name = int(row[0]), row[1].strip("`")
    states = {state.value: code for state, code in STATUS.items()}
    assert states.get(name) == status or (status == 500 and f'500, "{name}"' in SOURCES)
    for quote in re.findall(r"`([^`]+ [^`]+)`", row[2]):
        assert quote in SOURCES, quote


def test_every_error_of_a_request_that_the_page_should_have() -> None:
    shown = set(re.findall(r"`(\w+)`", REQUESTS))
    apart = {"internal_error", "invalid_request", "invalid_setting", "start_failed", "not_found", "method_not_allowed"}
    missing = (
        {found.code for found in classes(errors.ServerError) if found.__module__.startswith(f"{errors.__name__}.")}
        - shown
        - apart
    )
    assert not missing


def test_every_setting_on_the_page_exists() -> None:
    named = re.findall(r"ENDPOINT_(\w+?)\b(?:=|`| |$|s3)", PAGE, re.MULTILINE)
    assert named
    assert {name.lower() for name in named} <= fields().keys()
    assert ServingStatus.READY not in {state for state, code in STATUS.items() if code != 200}
