"""Compares a restore, and the fetch of a model, with other ways in pairs, with the same bytes, server and disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from benchmarks.lib.measurements import Comparison, compare
from benchmarks.lib.probe import connects
from benchmarks.lib.report import BenchmarkReport
from benchmarks.restore.restore_contestant import ContestantFailed, RestoreRun, commands, run
from benchmarks.restore.restore_data import write_entry
from handler.processes import free_port

RIVALS = ("s5cmd", "boto3", "boto3_8", "cp")
# What is ours, and the rivals that do the same: they read S3. A fetch checks lengths and versions, a restore digests.
SUBJECTS = {"restore": RIVALS, "fetch": ("s5cmd", "boto3", "boto3_8")}
MEMORY_MB = 400.0
ACCESS, SECRET = "bench", "bench-secret"


def measure(
    pairs: int, rivals: tuple[str, ...], threads: int, scale: float, directory: Path, report: BenchmarkReport
) -> bool:
    """Runs everything and writes the report. Returns False if ours used too much memory.

    :raises ContestantFailed: a run failed.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    paired = [(ours, rival) for ours, able in SUBJECTS.items() for rival in rivals if rival in able]
    met: dict[tuple[str, str], list[tuple[RestoreRun, RestoreRun]]] = {pair: [] for pair in paired}
    try:
        size = write_entry(directory / "s3", scale)
        report.say(
            f"{size / 1e9:.2f} GB; {threads} connections of ours; {pairs} pairs with each of {', '.join(rivals)}"
        )
        with _server(directory / "s3") as endpoint:
            environment = _environment(endpoint)
            target = directory / "restored" / "entry"
            command_of = commands(directory / "s3", target, endpoint, threads)

            def once(name: str) -> RestoreRun:
                result = run(name, command_of[name], environment, target, size)
                report.line({"record": "restore", **asdict(result)})
                rate = f"{size / 1e6 / result.process_s:,.0f} MB/s"
                report.say(f"{name:>8} {result.process_s:6.2f} s {rate:>12} {result.cpu_s:5.2f} CPU s")
                return result

            for name in (*SUBJECTS, *rivals[:1]):  # loads the pages of the source and of the programs into memory
                once(name)
            for pair in range(pairs):
                for ours, rival in paired:
                    results = {name: once(name) for name in ((ours, rival) if pair % 2 else (rival, ours))}
                    met[ours, rival].append((results[ours], results[rival]))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    report.finish(_comparisons(met, size), "restore and fetch: ours against others, rates in MB/s")
    most = max(mine.rss_mb for runs in met.values() for mine, _ in runs)
    if most > MEMORY_MB:
        report.alarm(f"ours took {most:.0f} MB of memory; {MEMORY_MB:.0f} are allowed")
    return most <= MEMORY_MB


def _comparisons(met: dict[tuple[str, str], list[tuple[RestoreRun, RestoreRun]]], size: int) -> list[Comparison]:
    found: list[Comparison | None] = []
    for (ours, rival), runs in met.items():
        # Without the start of Python, which a server that restores has behind it; s5cmd and cp are whole processes.
        rates = [(size / 1e6 / _seconds(mine), size / 1e6 / _seconds(other)) for mine, other in runs]
        found.append(compare(f"{ours}_vs_{rival}", rates, "MB/s", better="more"))
        rates = [(size / 1e6 / mine.process_s, size / 1e6 / other.process_s) for mine, other in runs]
        found.append(compare(f"{ours}_process_vs_{rival}", rates, "MB/s", better="more"))
        cpu = [(mine.cpu_s, other.cpu_s) for mine, other in runs]
        found.append(compare(f"{ours}_cpu_vs_{rival}", cpu, "CPU s"))
    memory = [(mine.rss_mb, MEMORY_MB) for runs in met.values() for mine, _ in runs]
    found.append(compare("restore_rss_vs_allowed", memory, "MB", worst=True))
    return [comparison for comparison in found if comparison is not None]


def _seconds(run: RestoreRun) -> float:
    return run.process_s if run.inside_s is None else run.inside_s


def _environment(endpoint: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


@contextmanager
def _server(directory: Path) -> Iterator[str]:
    """Runs `rclone serve s3` on loopback over a directory of buckets."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    command = [str(Path(sys.executable).with_name("rclone")), "serve", "s3", "--config", os.devnull]
    command += ["--log-level", "ERROR", "--addr", address, "--auth-key", f"{ACCESS},{SECRET}", str(directory)]
    process = subprocess.Popen(command)
    try:
        for _ in range(200):
            if process.poll() is not None:
                raise ContestantFailed("rclone serve s3 did not start")
            if connects(port):
                break
            time.sleep(0.05)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(10)
