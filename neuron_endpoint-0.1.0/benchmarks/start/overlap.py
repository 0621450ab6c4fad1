"""`python -m benchmarks overlap`: the time of a start over that of its longest step, with a model in S3."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import click

from benchmarks.lib.contestant import REAL, Contestant, container
from benchmarks.lib.contestant_server import ContestantServer, ServerFailed
from benchmarks.lib.measurements import compare
from benchmarks.lib.memory import make_resident
from benchmarks.lib.report import BenchmarkReport
from benchmarks.lib.run_conditions import measuring
from benchmarks.restore.loopback_s3 import environment_of, loopback_s3
from benchmarks.restore.restore_contestant import ContestantFailed
from benchmarks.restore.restore_data import BUCKET
from benchmarks.start.large_model import write_large_model
from handler.processes import free_port
from model_packaging.deployment.start_timeline import bars, last_start

MODEL, STORE = "model", "store"
RATE = "400M"  # bytes a second of rclone's --bwlimit, in units of 2**20


@click.command("overlap")
@click.option("--pairs", default=5, show_default=True, type=click.IntRange(1), help="Starts that restore.")
@click.option("--gb", default=4.0, show_default=True, type=float, help="Size of the model.")
@click.option("--rate", default=RATE, show_default=True, help="Bytes a second that S3 sends (rclone's --bwlimit).")
@click.option(
    "--scratch",
    default=Path("/dev/shm/bench-overlap"),  # noqa: S108
    show_default=True,
    type=click.Path(path_type=Path),
    help="Takes twice the model's size.",
)
@click.option("--out", default=Path("build/bench.json"), show_default=True, type=click.Path(path_type=Path))
def overlap(pairs: int, gb: float, rate: str, scratch: Path, out: Path) -> None:
    """Measure `start_overlap`: the first start compiles, the others restore."""
    report = BenchmarkReport(out, ("start_overlap",))
    shutil.rmtree(scratch, ignore_errors=True)
    met = []
    with measuring(report, ServerFailed, ContestantFailed):
        try:
            write_large_model(scratch / "s3" / BUCKET / MODEL, int(gb * 2**30))
            with loopback_s3(scratch / "s3", rate) as endpoint:
                for pair in range(-1, pairs):
                    make_resident(int(gb * 2**30))
                    ready, steps = _start(scratch, endpoint, report, restores=pair >= 0)
                    for line in bars(steps):
                        report.say(line)
                    longest = max(steps, key=lambda step: step["end_seconds"] - step["begin_seconds"])
                    seconds = longest["end_seconds"] - longest["begin_seconds"]
                    report.say(f"start {pair}: ready after {ready:.1f} s; {longest['step']} took {seconds:.1f} s")
                    report.line(
                        {"record": "overlap", "pair": pair, "ready_s": ready, "longest_s": seconds, "steps": steps}
                    )
                    if pair >= 0:
                        met.append((ready, seconds))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    comparison = compare("start_overlap", met, "s")
    report.finish([comparison] if comparison else [], "a start: ready, theirs is its longest step")


def _start(
    scratch: Path, endpoint: str, report: BenchmarkReport, *, restores: bool
) -> tuple[float, list[dict[str, Any]]]:
    """The seconds of one start on a machine that has nothing of the model, and its steps."""
    base = scratch / "ours"
    shutil.rmtree(base, ignore_errors=True)
    plain = container("ours", free_port(), Path(), scratch, REAL)
    (base / "model").unlink()
    environment = {
        **plain.environment,
        **{name: value for name, value in environment_of(endpoint).items() if name != "PATH"},
        "TORCHDYNAMO_DISABLE": "0",  # compiles, so that there are artifacts
        "SM_VLLM_ENFORCE_EAGER": "false",
        "ENDPOINT_MODEL": f"s3://{BUCKET}/{MODEL}",
        "ENDPOINT_ARTIFACT_STORE": f"s3://{BUCKET}/{STORE}",
        "ENDPOINT_SCRATCH": str(base / "scratch"),
        "ENDPOINT_ON_MISS": "fail" if restores else "compile",
    }
    served = Contestant(plain.name, plain.kind, plain.port, plain.command, environment)
    with ContestantServer(served, report.out.parent / "bench-overlap.log") as server:
        return server.start.ready_s, last_start(server.log.read_text().splitlines())
