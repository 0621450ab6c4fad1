"""`python -m benchmarks serving`: runs the parts of the serving benchmark and reports their results."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import click

from benchmarks.lib.comparison import comparisons
from benchmarks.lib.contestant import ENVIRONMENT, KINDS, REAL, SAMPLE_MODEL, STUB
from benchmarks.lib.contestant_server import ServerFailed
from benchmarks.lib.cpu_share import can_hold
from benchmarks.lib.measurements import Comparison
from benchmarks.lib.report import BenchmarkReport
from benchmarks.lib.request_mix import Api
from benchmarks.lib.run_conditions import measuring
from benchmarks.serving.random_model import write_random_model
from benchmarks.serving.second_opinion import OpinionFailed, opinions
from benchmarks.serving.serving import (
    CEILING_SHARE,
    Plan,
    Run,
    WarmUpFailed,
    contestants,
    run,
    stub_workloads,
    workloads,
)
from benchmarks.serving.start_times import SetupFailed, measure_setup
from handler.neuron.hardware.installed_packages import installed_versions
from handler.processes import free_port

QUICK_LIMIT_S = 200.0
FULL_LIMIT_S = 2 * 3600.0
STUB_QUICK_LIMIT_S = 110.0
STUB_PAIRS = 8
OPINION_PAIRS = 3
PARTS = ("setup", "model", "stub")


class Numbers(click.ParamType[tuple[int, ...]]):
    """A command-line type: numbers separated by commas."""

    name = "N,N,..."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        try:
            numbers = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers", param, ctx)
        if min(numbers) < 1:
            self.fail("must be positive", param, ctx)
        return numbers


@click.command("serving")
@click.option("--quick", is_flag=True, help="Smaller blocks, chat only; within 8 minutes.")
@click.option(
    "--pairs", default=12, show_default=True, type=click.IntRange(1), help="Blocks of each side per workload."
)
@click.option("--concurrency", type=Numbers(), help="Concurrent requests; default: 1,8,32,64,200 (quick: 1,32,64).")
@click.option("--parts", default=",".join(PARTS), show_default=True, help="The parts to run, separated by commas.")
@click.option("--second-opinion", is_flag=True, help="Also `vllm bench serve` on both; 3 pairs, five minutes.")
@click.option("--restarts", is_flag=True, help="Restart both servers for every pair.")
@click.option("--model", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Model directory.")
@click.option("--ours", default="container", show_default=True, type=click.Choice(list(KINDS)))
@click.option("--theirs", default="vllm", show_default=True, type=click.Choice(list(KINDS)))
@click.option("--dtype", default=REAL.dtype, show_default=True, help="Of the weights on both sides.")
@click.option("--limit", "limit_s", type=float, help="Seconds after which no further pair is started.")
@click.option("--out", default=Path("build/bench.json"), show_default=True, type=click.Path(path_type=Path))
def serving_command(
    quick: bool,
    pairs: int,
    concurrency: tuple[int, ...] | None,
    parts: str,
    second_opinion: bool,
    restarts: bool,
    model: Path | None,
    ours: str,
    theirs: str,
    dtype: str,
    limit_s: float | None,
    out: Path,
) -> None:
    """Compare our container and `vllm serve` under the same load."""
    apis: tuple[Api, ...] = ("chat",) if quick else ("chat", "completion")
    concurrency = concurrency or ((1, 32, 64) if quick else (1, 8, 32, 64, 200))
    limit = limit_s or (QUICK_LIMIT_S if quick else FULL_LIMIT_S)
    selected = parts.split(",")
    if unknown := set(selected) - set(PARTS):
        raise click.BadParameter(f"unknown: {', '.join(sorted(unknown))}", param_hint="--parts")
    plans = {
        "model": Plan(workloads(concurrency, apis, quick=quick), pairs, restarts, limit, replace(REAL, dtype=dtype)),
        "stub": Plan(
            stub_workloads(quick=quick, share=CEILING_SHARE if can_hold() else None),
            min(pairs, STUB_PAIRS),
            restarts,
            STUB_QUICK_LIMIT_S if quick else FULL_LIMIT_S,
            STUB,
        ),
    }
    report = BenchmarkReport(out)
    measured = Run()
    own: list[Comparison] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        directory = model or (
            SAMPLE_MODEL if any(SAMPLE_MODEL.glob("*.safetensors")) else write_random_model(Path(scratch) / "random")
        )
        report.line(_run_record(ours, theirs, directory, [plans[part] for part in selected if part in plans]))
        with measuring(report, ServerFailed, WarmUpFailed, SetupFailed, OpinionFailed):
            for part in selected:
                if part == "setup":
                    own += measure_setup(directory, Path(scratch) / part, free_port())
                    continue
                sides = contestants(ours, theirs, directory, Path(scratch) / part, plans[part].shape)
                run(plans[part], sides, report, measured)
            if second_opinion:
                place = Path(scratch) / "opinion"
                sides = contestants(ours, theirs, directory, place, plans["model"].shape)
                own += filter(None, opinions(sides, directory, Path(scratch), OPINION_PAIRS, report))
    report.finish([*own, *comparisons(measured.starts, measured.blocks)], f"ours: {ours}, theirs: {theirs}")
    report.say(f"{time.monotonic() - began:.0f} s in all; {report.out}, {report.lines}")
    if invalid := [block for block in measured.blocks if not block.valid]:
        report.alarm(f"{len(invalid)} invalid blocks; their workloads have no results:")
        for block in invalid:
            report.alarm(f"  pair {block.pair} {block.side} {block.workload.label}: {block.failures}")
        sys.exit(1)


def _run_record(ours: str, theirs: str, model: Path, plans: list[Plan]) -> dict[str, object]:
    return {
        "record": "run",
        "ours": ours,
        "theirs": theirs,
        "model": str(model),
        "packages": installed_versions(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg(),
        "environment": ENVIRONMENT,
        "plans": cast(object, plans),
        "began_unix": time.time(),
    }
