"""Compares the fetch of a model with other ways in pairs, with the same bytes and the same server."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.lib.contestant import ROOT
from benchmarks.lib.measurements import Comparison
from benchmarks.lib.report import BenchmarkReport
from benchmarks.restore.loopback_s3 import environment_of, loopback_s3
from benchmarks.restore.model_data import MODEL, SMALL_FILES, TENSOR_SIZE, TENSORS, write_model
from benchmarks.restore.restore_benchmark import against
from benchmarks.restore.restore_contestant import RestoreRun, commands, run
from handler.storage.transfer.download_pool import threads_here

RIVALS = ("s5cmd", "boto3", "runai")
SHARD = TENSORS * TENSOR_SIZE
RUNAI = ("runai-model-streamer==0.17.0", "runai-model-streamer-s3==0.17.1", "humanize")


def measure_fetch(
    pairs: int,
    rivals: tuple[str, ...],
    gigabytes: tuple[int, ...],
    directory: Path,
    report: BenchmarkReport,
    *,
    tls: bool,
) -> None:
    """Runs everything and writes the report.

    :param gigabytes: the sizes of the model, in units of 2**30 bytes.
    :raises ContestantFailed: a run failed.
    """
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "s3").mkdir(parents=True)
    found: list[Comparison] = []
    try:
        with loopback_s3(directory / "s3", tls=tls) as endpoint:
            environment = {
                **environment_of(endpoint, directory / "s3" if tls else None),
                "PYTHONPATH": f"{ROOT}:{install_runai() if 'runai' in rivals else ''}",
                "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0",
                "RUNAI_STREAMER_LOG_LEVEL": "ERROR",
            }
            target = directory / "fetched" / "model"
            command_of = commands(directory / "s3", MODEL, target, endpoint, threads_here())
            for size_gb in gigabytes:
                size = write_model(directory / "s3", size_gb * 2**30 // SHARD)
                report.say(f"{size / 1e9:.2f} GB; {pairs} pairs with each of {', '.join(rivals)}")

                def once(name: str, size: int = size) -> RestoreRun:
                    in_memory = size - sum(SMALL_FILES.values()) if name == "runai" else 0
                    result = run(name, command_of[name], environment, target, size, in_memory)
                    report.line({"record": "fetch", "size": size, **asdict(result)})
                    rate = f"{size / 1e6 / (result.inside_s or result.process_s):,.0f} MB/s"
                    report.say(f"{name:>8} {result.process_s:6.2f} s {rate:>12} {result.cpu_s:5.2f} CPU s")
                    return result

                met: dict[str, list[tuple[RestoreRun, RestoreRun]]] = {rival: [] for rival in rivals}
                for name in ("fetch", *rivals):  # loads the pages of the source and of the programs into memory
                    once(name)
                for pair in range(pairs):
                    for rival in rivals:
                        results = {name: once(name) for name in (("fetch", rival) if pair % 2 else (rival, "fetch"))}
                        met[rival].append((results["fetch"], results[rival]))
                for rival, runs in met.items():
                    found += against(f"fetch{'_tls' if tls else ''}{{}}_vs_{rival}_{size_gb}gb", runs, size)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    report.finish(found, "fetch: ours against others, rates in MB/s")


def install_runai() -> Path:
    """Installs Run:ai's streamer beside this environment, whose torch it uses. It pins another one."""
    directory = ROOT / "build" / "runai"
    if not (directory / "runai_model_streamer").is_dir():
        uv = str(Path(sys.executable).with_name("uv"))
        command = [uv, "pip", "install", "--quiet", "--no-deps", "--target", str(directory), *RUNAI]
        subprocess.run([*command, "--python", sys.executable], check=True)
    return directory
