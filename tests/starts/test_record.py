"""What says "works" was started: it is in the record of `make test-starts`, with the settings that it has now."""

from __future__ import annotations

import pytest
from start_list import Start, recorded, starts


@pytest.mark.parametrize("start", starts(), ids=lambda start: start.number)
def test_it_is_in_the_record(start: Start) -> None:
    """After a change of a row or a recipe: `make test-starts`."""
    assert start.settings in recorded(), "it was not started, or with other settings, or it failed"
    found = recorded()[start.settings]
    assert found["line"] == start.line
    assert len(found["tokens"]) >= 2 + len(start.requests)


def test_nothing_else_is_in_the_record() -> None:
    assert set(recorded()) == {start.settings for start in starts()}
    assert {entry["line"] for entry in recorded().values()} >= {"cpu", "nxdi-0.16", "native-0.24", "native-0.29"}
