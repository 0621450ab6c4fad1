"""`python -m benchmarks s3-start`: from a model in S3 to the first sampled token, beside other ways.

Ours fetches the model itself. The others are `vllm serve` over Run:ai's streamer, and `s5cmd cp` followed by
`vllm serve`. `local` is ours with the model on this machine: what is left if all of a fetch could be hidden. The
engines are eager, so nothing is compiled.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from benchmarks.lib.comparison import Started
from benchmarks.lib.contestant import REAL, Contestant, container, vllm_serve
from benchmarks.lib.contestant_server import ServerFailed
from benchmarks.lib.measurements import compare
from benchmarks.lib.memory import make_resident
from benchmarks.lib.report import BenchmarkReport
from benchmarks.lib.run_conditions import measuring
from benchmarks.restore.fetch_benchmark import install_runai
from benchmarks.restore.loopback_s3 import environment_of, loopback_s3
from benchmarks.restore.restore_contestant import ContestantFailed, commands
from benchmarks.restore.restore_data import BUCKET
from benchmarks.serving.serving import WarmUpFailed, first_sample
from benchmarks.start.large_model import write_large_model
from handler.processes import free_port
from model_packaging.deployment.start_timeline import bars, last_start

MODEL = "model"
OURS, LOCAL, RIVALS = "ours", "local", ("runai", "s5cmd")


@dataclass(frozen=True, slots=True)
class S3Starts:
    """The starts of one run.

    :param scratch: holds the server's files, and what each start fetches.
    :param environment: of the clients of S3.
    """

    scratch: Path
    environment: Mapping[str, str]
    endpoint: str

    def contestant(self, name: str) -> Contestant:
        """A server on a machine that has nothing of the model."""
        base = self.scratch / name
        shutil.rmtree(base, ignore_errors=True)
        if name == LOCAL:
            return container(name, free_port(), self.scratch / "s3" / BUCKET / MODEL, self.scratch, REAL)
        if name == OURS:
            plain = container(name, free_port(), Path(), self.scratch, REAL)
            (base / "model").unlink()
            settings = {
                "ENDPOINT_MODEL": f"s3://{BUCKET}/{MODEL}",
                "ENDPOINT_SCRATCH": str(base / "scratch"),
            }
            return replace(plain, environment={**plain.environment, **self.environment, **settings})
        plain = vllm_serve(name, free_port(), base / MODEL, base, REAL)
        command = list(plain.command)
        if name == "runai":
            command[2] = f"s3://{BUCKET}/{MODEL}"
            command += ["--load-format", "runai_streamer"]
            offline = {"HF_HUB_OFFLINE": "0"}  # otherwise vLLM 0.16.0 looks for s3:// in the cache of the hub
        else:
            copy = commands(self.scratch / "s3", MODEL, base / MODEL, self.endpoint, 1)["s5cmd"]
            offline = {}
            command = ["sh", "-c", f"{shlex.join(copy)} >/dev/null && exec {shlex.join(command)}"]
        path = os.pathsep.join((plain.environment["PYTHONPATH"], str(install_runai())))
        environment = {**plain.environment, **self.environment, "PYTHONPATH": path, **offline}
        return replace(plain, command=tuple(command), environment=environment)

    def run(self, name: str, pair: int, report: BenchmarkReport) -> tuple[Started, list[dict[str, Any]]]:
        """One start, and its steps, if it is ours."""
        side = self.contestant(name)
        with ExitStack() as stack:
            server, started = first_sample(stack, side, pair, report, f"bench-s3-{name}.log")
            steps = last_start(server.log.read_text().splitlines()) if name in (OURS, LOCAL) else []
        report.line(started)
        shutil.rmtree(self.scratch / name, ignore_errors=True)
        return started, steps


def longest_chain(steps: Sequence[Mapping[str, Any]]) -> float:
    """Seconds of the longest chain of steps that had to follow each other."""
    chains: dict[str, float] = {}
    for step in steps:  # in the order in which they began
        before = max((chains.get(name, 0.0) for name in step["waited_for"]), default=0.0)
        chains[step["step"]] = before + step["end_seconds"] - step["begin_seconds"]
    return max(chains.values(), default=0.0)


@click.command("s3-start")
@click.option("--pairs", default=3, show_default=True, type=click.IntRange(1), help="Starts of each way.")
@click.option("--rivals", default=",".join(RIVALS), show_default=True, help="Other ways: runai, s5cmd, local.")
@click.option("--gb", default=2.0, show_default=True, type=float, help="Size of the model.")
@click.option("--rate", default="400M", show_default=True, help="Bytes a second that S3 sends (rclone's --bwlimit).")
@click.option("--tls", is_flag=True, help="S3 speaks TLS.")
@click.option("--limit", default=1200.0, show_default=True, help="Seconds after which no pair begins.")
@click.option(
    "--scratch",
    default=Path("/dev/shm/bench-s3"),  # noqa: S108
    show_default=True,
    type=click.Path(path_type=Path),
    help="Takes twice the model's size.",
)
@click.option("--out", default=Path("build/bench.json"), show_default=True, type=click.Path(path_type=Path))
def s3_start(pairs: int, rivals: str, gb: float, rate: str, tls: bool, limit: float, scratch: Path, out: Path) -> None:
    """Measure `s3_first_token` and `start_overlap`, with a model in S3."""
    names = tuple(rivals.split(","))
    if unknown := set(names) - {*RIVALS, LOCAL}:
        raise click.BadParameter(f"unknown: {', '.join(sorted(unknown))}", param_hint="--rivals")
    figures = {name: f"s3_first_token_vs_{name}" for name in names}
    report = BenchmarkReport(out, ("start_overlap", *figures.values()))
    until = time.monotonic() + limit
    met: dict[str, list[tuple[float, float]]] = {figure: [] for figure in ("start_overlap", *figures.values())}
    shutil.rmtree(scratch, ignore_errors=True)
    with measuring(report, ServerFailed, ContestantFailed, WarmUpFailed):
        try:
            write_large_model(scratch / "s3" / BUCKET / MODEL, int(gb * 2**30))
            with loopback_s3(scratch / "s3", rate, tls=tls) as endpoint:
                clients = environment_of(endpoint, scratch / "s3" if tls else None)
                clients |= {"RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0"}
                starts = S3Starts(scratch, {name: clients[name] for name in clients if name != "PATH"}, endpoint)
                starts.run(OURS, -1, report)  # reads the programs from disk
                for pair in range(pairs):
                    if time.monotonic() > until:
                        report.alarm(f"out of time: {pair} of {pairs} pairs")
                        break
                    started: dict[str, Started] = {}
                    for name in (OURS, *names)[:: 1 if pair % 2 else -1]:
                        make_resident(int(gb * 2**30))
                        started[name], steps = starts.run(name, pair, report)
                        if steps:
                            for line in bars(steps):
                                report.say(line)
                        if name == OURS:
                            met["start_overlap"].append((started[name].ready_s, longest_chain(steps)))
                    for name, figure in figures.items():
                        met[figure].append((started[OURS].first_sampled_s, started[name].first_sampled_s))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    compared = [compare(figure, values, "s") for figure, values in met.items()]
    report.finish(
        [each for each in compared if each],
        "a model in S3 to the first token; start_overlap: theirs is the longest chain",
    )
