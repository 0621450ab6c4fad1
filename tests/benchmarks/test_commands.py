"""Each benchmark's command starts, and finds the files of the repository that it needs."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.lib.contestant import ROOT, SAMPLE_MODEL
from tests.simulation.__main__ import main as fleet


@pytest.mark.parametrize("name", sorted(main.commands))
def test_a_command_prints_its_options(name: str) -> None:
    shown = CliRunner().invoke(main, [name, "--help"])
    assert (shown.exit_code, f"Usage: main {name} [OPTIONS]" in shown.output) == (0, True)


def test_the_sample_model_is_found() -> None:
    assert (SAMPLE_MODEL / "config.json").is_file()
    assert (ROOT / "benchmarks" / "serving" / "stub_worker.py").is_file()


def test_the_simulation_of_a_fleet_is_a_command_of_its_own() -> None:
    assert "fleet" not in main.commands
    assert CliRunner().invoke(fleet, ["--help"]).exit_code == 0
