"""`python -m benchmarks start`: the times of our start and of `vllm serve`'s, up to the first sampled reply."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from benchmarks.lib.comparison import STARTED, Started, comparisons
from benchmarks.lib.contestant import SAMPLE_MODEL
from benchmarks.lib.contestant_server import ServerFailed
from benchmarks.lib.report import BenchmarkReport
from benchmarks.lib.run_conditions import measuring
from benchmarks.serving.serving import WarmUpFailed, contestants, first_sample, in_turn
from benchmarks.serving.start_times import SETUP, SetupFailed, measure_setup
from handler.processes import free_port


@click.command("start")
@click.option("--pairs", default=5, show_default=True, type=click.IntRange(1), help="Starts of each side.")
@click.option("--out", default=Path("build/bench.json"), show_default=True, type=click.Path(path_type=Path))
def first_replies(pairs: int, out: Path) -> None:
    """Measure `start_first_sampled_s` and the other start times of both sides, and `setup_s`."""
    report = BenchmarkReport(out, (*(metric.name for metric in STARTED), *SETUP))
    starts: list[Started] = []
    with (
        measuring(report, ServerFailed, WarmUpFailed, SetupFailed),
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
    ):
        setup = measure_setup(SAMPLE_MODEL, Path(scratch) / "setup", free_port())
        sides = contestants("container", "vllm", SAMPLE_MODEL, Path(scratch))
        for pair in range(pairs):
            for side in in_turn(sides, pair):
                with ExitStack() as stack:
                    _, started = first_sample(stack, side, pair, report, f"bench-start-{side.name}.log")
                starts.append(started)
                report.line(started)
    report.finish([*setup, *comparisons(starts, [])], "a start: ours, theirs is vllm serve")
