"""The compared ways to download files from S3. Each run is a separate process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lib.memory import make_resident
from benchmarks.restore.restore_data import BUCKET

# Bytes of memory that a run may take beside the pages that it writes.
MARGIN = 3 << 30


class ContestantFailed(Exception):
    """A run failed or was incomplete."""


@dataclass(frozen=True, slots=True)
class RestoreRun:
    """One run. Times in seconds, of wall clock and of CPU (user and system).

    :param process_s: from the process's start to its end.
    :param inside_s: the time that the program itself reports; None if it reports none.
    :param rss_mb: the maximum. Never less than this process, because a child starts as its copy.
    """

    name: str
    process_s: float
    inside_s: float | None
    cpu_s: float
    rss_mb: float


def commands(root: Path, prefix: str, target: Path, endpoint: str, threads: int) -> dict[str, list[str]]:
    """Returns the command of each contestant that downloads a prefix of the bucket to `target`."""
    child = [sys.executable, "-m", "benchmarks.restore.restore_child"]
    s5cmd = str(Path(sys.executable).with_name("s5cmd"))
    return {
        **{way: [*child, way, prefix, str(target), str(threads)] for way in ("restore", "fetch", "runai")},
        "s5cmd": [s5cmd, "--endpoint-url", endpoint, "cp", f"s3://{BUCKET}/{prefix}/*", f"{target}/"],
        "cp": ["cp", "-r", str(root / BUCKET / prefix), str(target)],
        "boto3": [*child, "boto3", prefix, str(target), "1"],
        "boto3_8": [*child, "boto3", prefix, str(target), "8"],
    }


def run(
    name: str, command: list[str], environment: Mapping[str, str], target: Path, size: int, in_memory: int = 0
) -> RestoreRun:
    """Runs a command into an empty directory, and checks the number of bytes.

    :param in_memory: how many bytes of `size` it leaves in its memory and not in files.

    The files of the previous run are deleted before the clock starts, and enough free memory is made resident. So no
    side pays for the pages of the other.

    :raises ContestantFailed: it failed, or wrote another number of bytes.
    """
    shutil.rmtree(target.parent, ignore_errors=True)
    target.parent.mkdir(parents=True)
    make_resident(size + MARGIN)
    began = time.perf_counter()
    process = subprocess.Popen(command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    process.stderr.close()
    if process.returncode:
        raise ContestantFailed(f"{name} ended with {process.returncode}: {errors.decode(errors='replace')[-500:]}")
    arrived = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if arrived != size - in_memory:
        raise ContestantFailed(f"{name} downloaded {arrived:,} bytes of {size - in_memory:,}")
    inside = float(output) if "benchmarks.restore.restore_child" in command else None
    return RestoreRun(name, seconds, inside, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)
