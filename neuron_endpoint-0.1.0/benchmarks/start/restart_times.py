"""`python -m benchmarks restart`: the time from a killed engine to /ping 200, beside that of a first start."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import click
from psutil import Process

from benchmarks.lib.contestant import SAMPLE_MODEL, container
from benchmarks.lib.measurements import compare
from benchmarks.lib.process_usage import ENGINE_TITLE, end, family, title
from benchmarks.lib.report import BenchmarkReport
from benchmarks.lib.run_conditions import measuring
from container.server.preload import LOADED
from handler.processes import free_port

LIMIT_S = 300.0
PATIENCE_S = 60.0
LOOK_S = 0.02


@click.command("restart")
@click.option("--pairs", default=5, show_default=True, type=click.IntRange(1), help="Servers, each killed once.")
@click.option("--out", default=Path("build/bench.json"), show_default=True, type=click.Path(path_type=Path))
def restart_times(pairs: int, out: Path) -> None:
    """Measures `restart_ready_s`, with vLLM loaded for the next serving process, as after a minute of serving."""
    report = BenchmarkReport(out, ("restart_ready_s",))
    met = []
    with measuring(report):
        for pair in range(pairs):
            with tempfile.TemporaryDirectory() as scratch:
                again, first = _one(Path(scratch))
            met.append((again, first))
            report.line({"record": "restart", "pair": pair, "restart_ready_s": again, "first_ready_s": first})
            report.say(f"pair {pair}: ready {first:.1f} s after the start, {again:.1f} s after the engine was killed")
    comparison = compare("restart_ready_s", met, "s")
    report.finish([comparison] if comparison else [], "a restart, over the first start of the same server")


def _one(scratch: Path) -> tuple[float, float]:
    """The seconds of a restart, and of the first start."""
    port, log = free_port(), scratch / "log"
    served = container("ours", port, SAMPLE_MODEL, scratch)
    environment = {**os.environ, **served.environment, "ENDPOINT_PRELOAD_AFTER": "0.1"}
    with log.open("wb") as output:
        began = time.monotonic()
        server = subprocess.Popen(served.command, env=environment, stdout=output, stderr=output)
    try:
        _wait(lambda: _healthy(port), log)
        first = time.monotonic() - began
        _wait(lambda: LOADED in log.read_text(), log)
        began = time.monotonic()
        os.kill(_core(server.pid).pid, signal.SIGKILL)
        _wait(lambda: not _healthy(port), log)
        _wait(lambda: _healthy(port), log)
        return time.monotonic() - began, first
    finally:
        processes = family(server.pid)
        server.terminate()
        end(processes, PATIENCE_S)
        server.wait(PATIENCE_S)


def _core(root: int) -> Process:
    return next(process for process in family(root) if title(process).startswith(ENGINE_TITLE))


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=2.0):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _wait(condition: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise click.ClickException(log.read_text()[-2000:])
        time.sleep(LOOK_S)
