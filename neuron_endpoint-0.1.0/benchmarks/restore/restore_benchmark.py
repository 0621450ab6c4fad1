"""Compares a restore with other ways in pairs, with the same bytes, server and disk."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

from benchmarks.lib.measurements import Comparison, compare
from benchmarks.lib.report import BenchmarkReport
from benchmarks.restore.loopback_s3 import environment_of, loopback_s3
from benchmarks.restore.restore_contestant import RestoreRun, commands, run
from benchmarks.restore.restore_data import ENTRY, write_entry

RIVALS = ("s5cmd", "boto3", "boto3_8", "cp")
MEMORY_MB = 400.0


def measure(
    pairs: int, rivals: tuple[str, ...], threads: int, scale: float, directory: Path, report: BenchmarkReport
) -> bool:
    """Runs everything and writes the report. Returns False if ours used too much memory.

    :raises ContestantFailed: a run failed.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    met: dict[str, list[tuple[RestoreRun, RestoreRun]]] = {rival: [] for rival in rivals}
    try:
        size = write_entry(directory / "s3", scale)
        report.say(
            f"{size / 1e9:.2f} GB; {threads} connections of ours; {pairs} pairs with each of {', '.join(rivals)}"
        )
        with loopback_s3(directory / "s3") as endpoint:
            environment = environment_of(endpoint)
            target = directory / "restored" / "entry"
            command_of = commands(directory / "s3", ENTRY, target, endpoint, threads)

            def once(name: str) -> RestoreRun:
                result = run(name, command_of[name], environment, target, size)
                report.line({"record": "restore", **asdict(result)})
                rate = f"{size / 1e6 / result.process_s:,.0f} MB/s"
                report.say(f"{name:>8} {result.process_s:6.2f} s {rate:>12} {result.cpu_s:5.2f} CPU s")
                return result

            for name in ("restore", *rivals[:1]):  # loads the pages of the source and of the programs into memory
                once(name)
            for pair in range(pairs):
                for rival in rivals:
                    results = {name: once(name) for name in (("restore", rival) if pair % 2 else (rival, "restore"))}
                    met[rival].append((results["restore"], results[rival]))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    report.finish(_comparisons(met, size), "restore: ours against others, rates in MB/s")
    most = max(mine.rss_mb for runs in met.values() for mine, _ in runs)
    if most > MEMORY_MB:
        report.alarm(f"ours took {most:.0f} MB of memory; {MEMORY_MB:.0f} are allowed")
    return most <= MEMORY_MB


def _comparisons(met: dict[str, list[tuple[RestoreRun, RestoreRun]]], size: int) -> list[Comparison]:
    found = [comparison for rival, runs in met.items() for comparison in against(f"restore{{}}_vs_{rival}", runs, size)]
    memory = [(mine.rss_mb, MEMORY_MB) for runs in met.values() for mine, _ in runs]
    allowed = compare("restore_rss_vs_allowed", memory, "MB", worst=True)
    return found if allowed is None else [*found, allowed]


def against(name: str, runs: list[tuple[RestoreRun, RestoreRun]], size: int) -> list[Comparison]:
    """Compares one rival: the rates inside the program, those of the whole processes, and their CPU time.

    :param name: the id of a metric, with a place for what is compared.
    """
    # Without the start of Python, which a server that restores has behind it; s5cmd and cp are whole processes.
    inside = [(size / 1e6 / _seconds(mine), size / 1e6 / _seconds(other)) for mine, other in runs]
    whole = [(size / 1e6 / mine.process_s, size / 1e6 / other.process_s) for mine, other in runs]
    cpu = [(mine.cpu_s, other.cpu_s) for mine, other in runs]
    found = (
        compare(name.format(""), inside, "MB/s", better="more"),
        compare(name.format("_process"), whole, "MB/s", better="more"),
        compare(name.format("_cpu"), cpu, "CPU s"),
    )
    return [comparison for comparison in found if comparison is not None]


def _seconds(run: RestoreRun) -> float:
    return run.process_s if run.inside_s is None else run.inside_s
