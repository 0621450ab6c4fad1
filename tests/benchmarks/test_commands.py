"""Each benchmark's command starts, finds the repository's files, and keeps what others wrote to `build/bench.json`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.lib.contestant import ROOT, SAMPLE_MODEL
from benchmarks.lib.measurements import alone
from benchmarks.lib.report import BenchmarkReport
from tests.simulation.__main__ import main as fleet


def values(out: Path) -> dict[str, float]:
    return {entry["figure"]: entry["ours"] for entry in json.loads(out.read_text())}


def test_a_command_replaces_its_own_metrics_and_keeps_the_others(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    BenchmarkReport(out).finish([alone("rss", [1.0], "MB"), alone("setup_s", [2.0], "s")], "all")
    BenchmarkReport(out, ("setup_s",)).finish([alone("setup_s", [3.0], "s")], "one")
    assert values(out) == {"rss": 1.0, "setup_s": 3.0}


def test_a_run_that_fails_leaves_no_old_value_of_its_metrics(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    BenchmarkReport(out).finish([alone("rss", [1.0], "MB"), alone("setup_s", [2.0], "s")], "all")
    BenchmarkReport(out, ("setup_s",))
    assert values(out) == {"rss": 1.0}
    BenchmarkReport(out)
    assert not out.exists()


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
