"""`build/bench.json`, which several commands write."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.lib.measurements import alone
from benchmarks.lib.report import BenchmarkReport


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
