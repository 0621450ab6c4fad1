"""Writes the results of a run: a table, JSON lines with all records, and JSON with the ratios."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.lib.block import Block
from benchmarks.lib.comparison import Started
from benchmarks.lib.measurements import Comparison


class BenchmarkReport:
    """Writes each record at once, so that an interrupted run keeps what it has measured.

    :param only: the ids of the run's metrics. An existing file keeps the others. None: the file is replaced.
    """

    def __init__(self, out: Path, only: tuple[str, ...] | None = None) -> None:
        self.out = out
        self.lines = out.with_suffix(".jsonl")
        self.console = Console(stderr=True, highlight=False)
        out.parent.mkdir(parents=True, exist_ok=True)
        # An old result must not stand for a run that failed.
        if only is None:
            out.unlink(missing_ok=True)
            self.lines.unlink(missing_ok=True)
        else:
            self._write([known for known in self._known() if known.figure not in only])

    def line(self, record: Block | Started | dict[str, object]) -> None:
        with self.lines.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")

    def say(self, message: str) -> None:
        self.console.print(message, markup=False, soft_wrap=True)

    def alarm(self, message: str) -> None:
        self.console.print(message, style="bold red", markup=False, soft_wrap=True)

    def block(self, block: Block) -> None:
        self.line(block)
        m = block.measurements
        cpu = "" if m.cpu_s_per_1000_tokens is None else f", {m.cpu_s_per_1000_tokens:.3f} CPU s / 1,000 tokens"
        self.say(f"pair {block.pair} {block.side:>6} {block.workload.label}: {m.tokens_per_s:.0f} tokens/s{cpu}")
        for reason, count in block.failures.items():
            self.alarm(f"  INVALID: {count} x {reason}")

    def finish(self, comparisons: Sequence[Comparison], sides: str) -> None:
        measured = {comparison.figure for comparison in comparisons}
        self._write([*(known for known in self._known() if known.figure not in measured), *comparisons])
        width = None if sys.stdout.isatty() else 140
        Console(width=width).print(_table(comparisons, sides))

    def _known(self) -> list[Comparison]:
        return msgspec.json.decode(self.out.read_bytes(), type=list[Comparison]) if self.out.exists() else []

    def _write(self, comparisons: Sequence[Comparison]) -> None:
        self.out.write_bytes(msgspec.json.format(msgspec.json.encode(comparisons), indent=1) + b"\n")


def _table(comparisons: Sequence[Comparison], sides: str) -> Table:
    table = Table(
        title=sides,
        caption="ratio = ours / theirs: median of the pairs' ratios, its 95 % interval, smallest - largest",
    )
    table.add_column("figure", no_wrap=True)
    for heading in ("ours", "theirs", "ratio", "95 %", "spread", "pairs"):
        table.add_column(heading, justify="right")
    table.add_column("unit")
    table.add_column("better")
    for c in comparisons:
        ratio = "" if c.ratio is None else f"{c.ratio:.2f}"
        ranges = _range(c.likely_low, c.likely_high), _range(c.low, c.high)
        table.add_row(c.figure, _number(c.ours), _number(c.theirs), ratio, *ranges, str(c.pairs), c.unit, c.better)
    return table


def _range(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.2f} - {high:.2f}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
