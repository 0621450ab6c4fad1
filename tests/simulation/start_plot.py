"""Simulates a fleet that starts together, and plots its S3 requests over time.

In each further run the instance that compiles dies at another step of the protocol.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from tests.simulation.fleet import Fleet, Scenario, simulate
from tests.simulation.fleet_check import violations
from tests.simulation.fleet_fate import Death

COLUMNS, ROWS = 100, 12
# Two renewals within a compile in which somebody dies; the plot's compile takes its quarter of an hour.
SHORT = 50.0


def plotted_starts(instances: int, out: Path) -> bool:
    """Instances that start within a minute and find nothing compiled; the one that compiles dies, at another step in
    each further run. Returns whether something was wrong."""
    memory = Path("/dev/shm")
    began, wrong = time.monotonic(), 0
    lines: list[str] = []

    def say(line: str) -> None:
        click.echo(line)
        lines.append(line)

    with tempfile.TemporaryDirectory(prefix="fleet-", dir=memory if memory.is_dir() else None) as name:
        place = Path(name)
        quiet = Scenario(instances)
        say(f"{instances} instances within {quiet.within:.0f} s, a compile of {quiet.compile:.0f} s, nobody dies")
        result = simulate(quiet, place / "quiet")
        wrong += _report(quiet, result, say)
        for line in plot(result.rates()):
            say(line)
        steps = max(simulate(Scenario(2, compile=SHORT), place / "dry").deaths.steps.values(), key=len)
        say(f"\nThe compiling one dies at each of its {len(steps)} steps (virtual seconds, requests a second)")
        for number, step in enumerate(steps):
            for after in (False, True):
                scenario = Scenario(instances, compile=SHORT, deaths=[Death(number, after)], seed=number)
                with tempfile.TemporaryDirectory(dir=place) as one:
                    say(f"{number:3} {'after' if after else 'before':6} {step}")
                    wrong += _report(scenario, simulate(scenario, Path(one)), say)
    say(f"\n{time.monotonic() - began:.0f} s of real time; {wrong} violations")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n")
    return bool(wrong)


def _report(scenario: Scenario, fleet: Fleet, say: Callable[[str], None]) -> int:
    found = list(violations(scenario, fleet))
    rates = fleet.rates()
    last = max(instance.ended or 0.0 for instance in fleet.alive)
    say(
        f"      compiles begun {fleet.compiles['begun']}, finished {fleet.compiles['finished']}; manifests written "
        f"{fleet.manifests_written()}; the last is ready after {last:.0f} s; "
        f"{sum(rates.values()):,} requests, at most {max(rates.values())} a second"
    )
    for violation in found:
        say(f"      WRONG: {violation}")
    return len(found)


def plot(rates: dict[int, int]) -> list[str]:
    """Requests a second over time, as text: each column is the busiest second of its span."""
    last = max(rates)
    span = max(1, -(-(last + 1) // COLUMNS))
    columns = [max(rates.get(second, 0) for second in range(at, at + span)) for at in range(0, last + 1, span)]
    top = max(columns)
    lines = ["", f"requests a second (the busiest in each {span} s)"]
    for row in range(ROWS, 0, -1):
        label = f"{top * row / ROWS:6.0f} |"
        lines.append(label + "".join("#" if column >= top * (row - 0.5) / ROWS else " " for column in columns))
    lines.append("       +" + "-" * len(columns))
    lines.append(f"        0 s{'':{max(0, len(columns) - 12)}}{last} s")
    return lines
