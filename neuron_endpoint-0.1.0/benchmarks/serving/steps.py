"""Compares the engine's steps behind each front end, to explain the rates."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import click

from benchmarks.lib.block import run_block
from benchmarks.lib.contestant import KINDS, SAMPLE_MODEL, EngineShape
from benchmarks.lib.contestant_server import ContestantServer
from benchmarks.lib.request_mix import RequestMix
from benchmarks.serving.step_times import FILE, EngineStep
from handler.processes import free_port

SHAPE = EngineShape(worker="benchmarks.serving.step_timing_worker.StepWorker")
WARM = (RequestMix(concurrency=64, requests=256, temperature=1.0), RequestMix(concurrency=64, requests=256))
MS = 1e6


@dataclass(slots=True)
class Traced:
    """A server that records its engine's steps, and the steps of each block."""

    server: ContestantServer
    file: Path
    read: int = 0
    blocks: list[list[EngineStep]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    itl_p99_ms: list[float] = field(default_factory=list)
    ttft_p50_ms: list[float] = field(default_factory=list)

    def steps(self) -> list[EngineStep]:
        """Returns the steps recorded since the last call."""
        with self.file.open() as file:
            file.seek(self.read)
            text = file.read()
        self.read += len(text)
        return [EngineStep.of(line) for line in text.splitlines()]

    def block(self, workload: RequestMix, pair: int) -> None:
        block = run_block(self.server, workload, pair)
        if not block.valid:
            raise click.ClickException(f"requests failed: {block.failures}")
        steps = self.steps()
        if pair >= 0:
            self.blocks.append(steps)
            self.rates.append(block.measurements.tokens_per_s)
            self.itl_p99_ms.append(block.measurements.itl_p99_ms or 0.0)
            self.ttft_p50_ms.append(block.measurements.ttft_p50_ms or 0.0)


ROWS: tuple[tuple[str, Callable[[Traced], float]], ...] = (
    ("tokens/s", lambda t: statistics.median(t.rates)),
    ("TTFT p50 (ms)", lambda t: statistics.median(t.ttft_p50_ms)),
    ("between tokens, p99 (ms)", lambda t: statistics.median(t.itl_p99_ms)),
    ("steps", lambda t: _median(t, len)),
    ("wall (ms)", lambda t: _median(t, lambda b: (b[-1].sampled - b[0].began) / MS)),
    ("  in the model", lambda t: _median(t, lambda b: sum(s.computed - s.began for s in b) / MS)),
    ("  sampling", lambda t: _median(t, lambda b: sum(s.sampled - s.computed for s in b) / MS)),
    ("  between steps", lambda t: _median(t, lambda b: sum(y.began - x.sampled for x, y in pairwise(b)) / MS)),
    ("between two decodes, p50 (ms)", lambda t: _between(t)),
    ("a step without prompts (ms)", lambda t: _length(t, 0, 0)),
    ("with 1 to 8", lambda t: _length(t, 1, 8)),
    ("with more", lambda t: _length(t, 9, 10**6)),
    ("steps with 1 to 8 prompts", lambda t: _median(t, lambda b: sum(1 <= s.new <= 8 for s in b))),
    ("with more", lambda t: _median(t, lambda b: sum(s.new > 8 for s in b))),
    ("streams beside those, together", lambda t: _median(t, lambda b: sum(s.served - s.new for s in b if s.new > 8))),
)


def _median(traced: Traced, of: Callable[[Sequence[EngineStep]], float]) -> float:
    return statistics.median(of(block) for block in traced.blocks)


def _between(traced: Traced) -> float:
    """Returns the core's own overhead between two steps: before a step with the same requests, it waits for nothing."""
    pairs = [pair for block in traced.blocks for pair in pairwise(block)]
    gaps = [(y.began - x.sampled) / MS for x, y in pairs if x.new == y.new == 0 and x.served == y.served]
    return statistics.median(gaps) if gaps else float("nan")


def _length(traced: Traced, least: int, most: int) -> float:
    lengths = [(s.sampled - s.began) / MS for block in traced.blocks for s in block if least <= s.new <= most]
    return statistics.median(lengths) if lengths else float("nan")


@click.command()
@click.option("--concurrency", default=32, show_default=True)
@click.option("--pairs", default=6, show_default=True)
@click.option("--whole", is_flag=True, help="Replies that are not streamed.")
@click.option("--setting", "settings", multiple=True, help="NAME=VALUE of ours, in a third server beside the two.")
def steps(concurrency: int, pairs: int, whole: bool, settings: Sequence[str]) -> None:
    """Compare the engine steps of our container and of `vllm serve` under the same streams."""
    with tempfile.TemporaryDirectory(prefix="steps-") as scratch, ExitStack() as stack:
        traced: dict[str, Traced] = {}
        for name in ("ours", *(["ours so set"] if settings else []), "theirs"):
            kind = KINDS["vllm" if name == "theirs" else "container"]
            place = Path(scratch) / name.replace(" ", "-")
            side = kind(place.name, free_port(), SAMPLE_MODEL, Path(scratch), SHAPE)
            more = dict(setting.split("=", 1) for setting in settings) if name == "ours so set" else {}
            file = place.with_suffix(".steps")
            side = replace(side, environment={**side.environment, **more, FILE: str(file)})
            traced[name] = Traced(stack.enter_context(ContestantServer(side, place.with_suffix(".log"))), file)
            for workload in WARM:
                traced[name].block(workload, -1)
        for pair in range(pairs):
            for one in list(traced.values())[:: -1 if pair % 2 else 1]:
                one.block(RequestMix(concurrency=concurrency, streamed=not whole), pair)
        width = max(len(title) for title, _ in ROWS)
        click.echo(f"{'':{width}}" + "".join(f"{name:>14}" for name in traced))
        for title, value in ROWS:
            click.echo(f"{title:{width}}" + "".join(f"{value(one):14,.2f}" for one in traced.values()))
