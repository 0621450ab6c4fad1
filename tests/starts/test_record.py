"""What says "works" was started: it is in the record of `make test-starts`, with the settings that it has now."""

from __future__ import annotations

from pathlib import Path

import pytest

from handler.config.finding import Severity
from handler.config.loading.config_loader import load
from handler.neuron.planning.examination import examine_config
from tests.guides.fact_run import write_models
from tests.starts.start_list import CONFIGS, ENGINES, SERVED, Start, of_commands, recorded, starts


@pytest.mark.parametrize("start", starts(), ids=lambda start: start.number)
def test_it_is_in_the_record(start: Start) -> None:
    """After a change of a row or a recipe: `make test-starts`."""
    assert start.settings in recorded(), "it was not started, or with other settings, or it failed"
    found = recorded()[start.settings]
    assert found["line"] == start.line
    assert len(found["tokens"]) >= 2 + len(start.requests)


def test_nothing_else_is_in_the_record() -> None:
    assert set(recorded()) == {start.settings for start in starts()}
    assert {entry["line"] for entry in recorded().values()} == {*ENGINES, *SERVED}


@pytest.mark.parametrize(("start", "setting"), of_commands(), ids=lambda value: getattr(value, "number", value))
def test_a_translated_command_passes_check_or_its_setting_is_named(start: Start, setting: str, tmp_path: Path) -> None:
    write_models(tmp_path)
    model = str(tmp_path / start.model) if start.model in CONFIGS else start.model
    config = load(start.in_directories(tmp_path, tmp_path / "work"), model=model, fetch=lambda location: None)
    errors = [one for one in examine_config(config).findings if one.severity is Severity.ERROR]
    # The models have a shape and no weights here.
    assert [one.setting for one in errors if one.code != "model-files"] == ([setting] if setting else [])


def test_how_many_commands_there_are() -> None:
    """Of the 19 that `translate` reads (test_translate), two have errors of its own."""
    rejected = [bool(setting) for _, setting in of_commands()]
    assert (len(rejected), sum(rejected)) == (17, 2)
