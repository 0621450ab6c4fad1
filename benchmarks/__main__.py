"""`python -m benchmarks`: see README.md here."""

from __future__ import annotations

import os
import platform
import signal
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import cast

import click

from benchmarks.lib.block import Block
from benchmarks.lib.comparison import comparisons
from benchmarks.lib.contestant import ENVIRONMENT, KINDS, SAMPLE_MODEL, STUB
from benchmarks.lib.contestant_server import ServerFailed
from benchmarks.lib.cpu_share import can_hold
from benchmarks.lib.figures import Comparison
from benchmarks.lib.report import BenchmarkReport
from benchmarks.lib.request_mix import Api
from benchmarks.restore.restore_benchmark import RIVALS, measure
from benchmarks.restore.restore_contestant import ContestantFailed
from benchmarks.serving.front_ends import SHARE, FrontEndsFailed, front_ends, measure_front_ends
from benchmarks.serving.gateway_ceiling import gateway
from benchmarks.serving.random_model import write_random_model
from benchmarks.serving.second_opinion import OpinionFailed, opinions
from benchmarks.serving.serving import (
    CEILING_SHARE,
    Plan,
    Run,
    WarmUpFailed,
    contestants,
    free_port,
    run,
    stub_workloads,
    workloads,
)
from benchmarks.serving.start_times import SetupFailed, measure_setup
from benchmarks.serving.steps import steps
from benchmarks.soak.soak_command import command as soak
from handler.artifacts.restore.restore import threads_here
from handler.storage.storage_errors import ArtifactError
from tests.simulation.fleet_command import fleet

QUICK_LIMIT_S = 200.0
FULL_LIMIT_S = 2 * 3600.0
STUB_QUICK_LIMIT_S = 110.0
STUB_PAIRS = 8
OPINION_PAIRS = 3
QUICK_FRONT_END_BLOCKS, FRONT_END_BLOCKS = 3, 8
PARTS = ("setup", "model", "stub", "front-ends")
BUSY = 0.5  # processes that want to run, in the mean of the last minute


class Numbers(click.ParamType[tuple[int, ...]]):
    """Numbers separated by commas."""

    name = "N,N,..."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        try:
            numbers = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers", param, ctx)
        if min(numbers) < 1:
            self.fail("must be positive", param, ctx)
        return numbers


@click.group()
def main() -> None:
    """Benchmarks, side by side with what others do."""


@main.command()
@click.option("--quick", is_flag=True, help="Smaller blocks, chat only; within 8 minutes.")
@click.option(
    "--pairs", default=12, show_default=True, type=click.IntRange(1), help="Blocks of each side per workload."
)
@click.option("--concurrency", type=Numbers(), help="Concurrent requests; default: 1,8,32,64,200 (quick: 1,32,64).")
@click.option("--parts", default=",".join(PARTS), show_default=True, help="Which of them, separated by commas.")
@click.option("--second-opinion", is_flag=True, help="Also `vllm bench serve` on both; 3 pairs, five minutes.")
@click.option("--restarts", is_flag=True, help="Start both servers afresh for every pair.")
@click.option("--model", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Model directory.")
@click.option("--ours", default="container", show_default=True, type=click.Choice(list(KINDS)))
@click.option("--theirs", default="vllm", show_default=True, type=click.Choice(list(KINDS)))
@click.option("--limit", "limit_s", type=float, help="Seconds after which no further pair is begun.")
@click.option("--out", default=Path("build/bench.json"), show_default=True, type=click.Path(path_type=Path))
def serving(
    quick: bool,
    pairs: int,
    concurrency: tuple[int, ...] | None,
    parts: str,
    second_opinion: bool,
    restarts: bool,
    model: Path | None,
    ours: str,
    theirs: str,
    limit_s: float | None,
    out: Path,
) -> None:
    """Our container and `vllm serve` under the same load, in turn: ratios."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    apis: tuple[Api, ...] = ("chat",) if quick else ("chat", "completion")
    concurrency = concurrency or ((1, 32, 64) if quick else (1, 8, 32, 64, 200))
    limit = limit_s or (QUICK_LIMIT_S if quick else FULL_LIMIT_S)
    chosen = parts.split(",")
    if unknown := set(chosen) - set(PARTS):
        raise click.BadParameter(f"unknown: {', '.join(sorted(unknown))}", param_hint="--parts")
    plans = {
        "model": Plan(workloads(concurrency, apis, quick=quick), pairs, restarts, limit),
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
        report.line(_circumstances(ours, theirs, directory, [plans[part] for part in chosen if part in plans]))
        if (load := os.getloadavg()[0]) > BUSY:
            report.alarm(f"the machine is busy with something else (load average {load:.1f}): wide spreads ahead")
        try:
            for part in chosen:
                if part == "setup":
                    own += measure_setup(directory, Path(scratch) / part, free_port())
                    continue
                if part == "front-ends":
                    most, blocks = (2, QUICK_FRONT_END_BLOCKS) if quick else (3, min(pairs, FRONT_END_BLOCKS))
                    own += measure_front_ends(most, blocks, SHARE, directory, report)[0]
                    continue
                sides = contestants(ours, theirs, directory, Path(scratch) / part, plans[part].shape)
                run(plans[part], sides, report, measured)
            if second_opinion:
                place = Path(scratch) / "opinion"
                sides = contestants(ours, theirs, directory, place, plans["model"].shape)
                own += filter(None, opinions(sides, directory, Path(scratch), OPINION_PAIRS, report))
        except (ServerFailed, WarmUpFailed, SetupFailed, OpinionFailed, FrontEndsFailed, OSError) as error:
            report.alarm(str(error))
            sys.exit(1)
        except KeyboardInterrupt:
            report.alarm("interrupted; the servers have been ended")
            sys.exit(130)
    report.finish([*own, *comparisons(measured.starts, measured.blocks)], f"ours: {ours}, theirs: {theirs}")
    report.say(f"{time.monotonic() - began:.0f} s in all; {report.out}, {report.lines}")
    if invalid := [block for block in measured.blocks if not block.valid]:
        _condemn(report, invalid)
        sys.exit(1)


@main.command()
@click.option("--pairs", default=7, show_default=True, type=click.IntRange(1), help="Runs of each side per rival.")
@click.option("--rivals", default=",".join(RIVALS), show_default=True, help="Which of them, separated by commas.")
@click.option("--threads", default=threads_here, type=click.IntRange(1), help="Connections of ours.")
@click.option("--scale", default=1.0, show_default=True, type=float, help="Of every size: 1 is 2.2 GB in 200 files.")
@click.option("--scratch", default=Path("build/bench-restore"), show_default=True, type=click.Path(path_type=Path))
@click.option("--out", default=Path("build/bench-restore.json"), show_default=True, type=click.Path(path_type=Path))
def restore(pairs: int, rivals: str, threads: int, scale: float, scratch: Path, out: Path) -> None:
    """Restoring artifacts from S3, beside s5cmd, boto3 and cp: ratios of rates."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    chosen = tuple(rivals.split(","))
    if unknown := set(chosen) - set(RIVALS):
        raise click.BadParameter(f"unknown: {', '.join(sorted(unknown))}", param_hint="--rivals")
    report = BenchmarkReport(out)
    if (load := os.getloadavg()[0]) > BUSY:
        report.alarm(f"the machine is busy with something else (load average {load:.1f}): wide spreads ahead")
    try:
        fits = measure(pairs, chosen, threads, scale, scratch, report)
    except (ContestantFailed, ArtifactError, OSError) as error:
        report.alarm(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        report.alarm("interrupted; the server has been ended")
        sys.exit(130)
    sys.exit(0 if fits else 1)


def _condemn(report: BenchmarkReport, invalid: list[Block]) -> None:
    report.alarm(f"{len(invalid)} invalid blocks; their workloads have no figures:")
    for block in invalid:
        report.alarm(f"  pair {block.pair} {block.side} {block.workload.label}: {block.failures}")


def _interrupt(number: int, frame: object) -> None:
    """Once: what follows is the ending of the servers, which is bounded in time and must not be cut short."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _circumstances(ours: str, theirs: str, model: Path, plans: list[Plan]) -> dict[str, object]:
    return {
        "record": "run",
        "ours": ours,
        "theirs": theirs,
        "model": str(model),
        "vllm": metadata.version("vllm"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg(),
        "environment": ENVIRONMENT,
        "plans": cast(object, plans),
        "began_unix": time.time(),
    }


main.add_command(fleet)
main.add_command(gateway)
main.add_command(front_ends)
main.add_command(soak)
main.add_command(steps)

if __name__ == "__main__":
    main()
