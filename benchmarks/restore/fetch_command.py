"""`python -m benchmarks fetch`: compares the fetch of a model with other ways to read it from S3."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.lib.report import BenchmarkReport
from benchmarks.lib.run_conditions import measuring
from benchmarks.restore.fetch_benchmark import RIVALS, measure_fetch
from benchmarks.restore.restore_contestant import ContestantFailed


@click.command("fetch")
@click.option("--pairs", default=5, show_default=True, type=click.IntRange(1), help="Pairs of runs per rival.")
@click.option("--rivals", default=",".join(RIVALS), show_default=True, help="The rivals, separated by commas.")
@click.option(
    "--gb", "sizes", default=(2,), show_default=True, multiple=True, type=click.IntRange(1), help="Size of the model."
)
@click.option(
    "--scratch",
    default=Path("/dev/shm/bench-fetch"),  # noqa: S108
    show_default=True,
    type=click.Path(path_type=Path),
    help="Takes 2 GB for the server and the model's size for its copy.",
)
@click.option("--tls", is_flag=True, help="The server speaks TLS.")
@click.option("--out", default=Path("build/bench.json"), show_default=True, type=click.Path(path_type=Path))
def fetch_command(pairs: int, rivals: str, sizes: tuple[int, ...], scratch: Path, tls: bool, out: Path) -> None:
    """Compare the fetch of a model from S3 with s5cmd, boto3 and Run:ai's model streamer."""
    selected = tuple(rivals.split(","))
    if unknown := set(selected) - set(RIVALS):
        raise click.BadParameter(f"unknown: {', '.join(sorted(unknown))}", param_hint="--rivals")
    kind = "fetch_tls" if tls else "fetch"
    report = BenchmarkReport(out, tuple(f"{kind}_vs_{rival}_{size}gb" for rival in selected for size in sizes))
    with measuring(report, ContestantFailed):
        measure_fetch(pairs, selected, sizes, scratch, report, tls=tls)
