"""`python -m benchmarks restore`: compares the restore with other ways to download the same files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from benchmarks.lib.report import BenchmarkReport
from benchmarks.lib.run_conditions import measuring
from benchmarks.restore.restore_benchmark import RIVALS, measure
from benchmarks.restore.restore_contestant import ContestantFailed
from handler.storage.storage_errors import ArtifactError
from handler.storage.transfer.download_pool import threads_here


@click.command("restore")
@click.option("--pairs", default=7, show_default=True, type=click.IntRange(1), help="Pairs of runs per rival.")
@click.option("--rivals", default=",".join(RIVALS), show_default=True, help="The rivals, separated by commas.")
@click.option("--threads", default=threads_here, type=click.IntRange(1), help="Connections of our restore.")
@click.option(
    "--scale", default=1.0, show_default=True, type=float, help="Factor for all sizes; 1 is 2.2 GB in 200 files."
)
@click.option("--scratch", default=Path("build/bench-restore"), show_default=True, type=click.Path(path_type=Path))
@click.option("--out", default=Path("build/bench-restore.json"), show_default=True, type=click.Path(path_type=Path))
def restore_command(pairs: int, rivals: str, threads: int, scale: float, scratch: Path, out: Path) -> None:
    """Compare the restore of artifacts from S3 with s5cmd, boto3 and cp."""
    selected = tuple(rivals.split(","))
    if unknown := set(selected) - set(RIVALS):
        raise click.BadParameter(f"unknown: {', '.join(sorted(unknown))}", param_hint="--rivals")
    report = BenchmarkReport(out)
    with measuring(report, ContestantFailed, ArtifactError):
        fits = measure(pairs, selected, threads, scale, scratch, report)
    sys.exit(0 if fits else 1)
