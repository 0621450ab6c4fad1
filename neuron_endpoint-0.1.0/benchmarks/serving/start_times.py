"""Measures the time that our own code takes before the engine is imported, in new processes, one at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.lib import process_usage as processes
from benchmarks.lib.contestant import KINDS, REAL, ROOT
from benchmarks.lib.measurements import Comparison, alone

RUNS = 7
SETUP = ("setup_s", "import_serve_s", "import_check_s", "check_s")
LIMIT_S = 30.0
SERVE = (
    "import container.serve, container.server.gunicorn_server, container.server.worker, handler.startup.start, "
    "container.service"
)
CHECK = "import model_packaging.cli, model_packaging.commands.check"
BEFORE_THE_IMPORT = "check configuration"  # then the imports begin, and beside them the fetch of the model


class SetupFailed(Exception):
    """A measured process failed."""


def measure_setup(model: Path, scratch: Path, port: int, runs: int = RUNS) -> list[Comparison]:
    """Measures `setup_s`, from the start of `serve`'s process to the import of vLLM, and whole processes.

    :raises SetupFailed: one of them failed.
    """
    check = (str(Path(sys.executable).parent / "neuron-endpoint"), "check", str(model))
    times: tuple[Callable[[int], float], ...] = (
        lambda run: _setup(model, scratch / f"run{run}", port),
        lambda run: _whole((sys.executable, "-c", SERVE)),
        lambda run: _whole((sys.executable, "-c", CHECK)),
        lambda run: _whole(check),
    )
    timed = dict(zip(SETUP, times, strict=True))
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for run in range(-1, runs):  # the first compiles what has never been imported
        for name, time_one in timed.items():
            took = time_one(run)
            if run >= 0:
                seconds[name].append(took)
    return [alone(name, values, "s") for name, values in seconds.items()]


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment with bytecode caching enabled, as in an image."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **more}


def _whole(command: tuple[str, ...]) -> float:
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env=_environment({}), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode != 0:
        raise SetupFailed(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
    return time.monotonic() - began


def _setup(model: Path, scratch: Path, port: int) -> float:
    """Returns the time by the server's own clock, which starts with its process. The server is ended before vLLM."""
    contestant = KINDS["container"]("setup", port, model, scratch, REAL)
    environment = _environment({**contestant.environment, "ENDPOINT_LOG_FORMAT": "json"})
    process = subprocess.Popen(
        contestant.command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        output = b""
        for line in process.stdout:
            output += line
            if (found := seconds_of(line)) is not None:
                return found
        raise SetupFailed(f"serve ended before vLLM was imported: {output[-500:].decode(errors='replace')}")
    finally:
        processes.end(processes.family(process.pid), 2.0)
        process.stdout.close()
        process.wait(timeout=10)


def seconds_of(line: bytes) -> float | None:
    """Returns the seconds since the process started, from the log line that ends the last stage before the imports."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    if not isinstance(event, dict) or event.get("event") != "stage" or event.get("stage") != BEFORE_THE_IMPORT:
        return None
    return float(event["since_start_seconds"])
