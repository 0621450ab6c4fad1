"""`python -m tests.simulation`: simulates starts of a fleet in virtual time.

Without options: one fleet of 1,000 instances, with a plot. With `--schedules`: many small fleets in
which everything goes wrong. With `--load`: the requests of fleets up to 10,000 endpoints, as a table (`load_table`).
With `--seed`: one of the schedules, with each of its events.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from tests.simulation.fleet import Fleet, Scenario, simulate
from tests.simulation.fleet_check import violations
from tests.simulation.fleet_fate import Death
from tests.simulation.load_table import load_table
from tests.simulation.schedules.schedule import Schedule
from tests.simulation.schedules.schedule_batches import broken, run_all

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


@click.command()
@click.option("--instances", default=1000, show_default=True, type=click.IntRange(2), help="Of the fleet to plot.")
@click.option("--out", default=Path("build/fleet.txt"), show_default=True, type=click.Path(path_type=Path))
@click.option("--seed", type=int, help="Runs the schedule of this seed, and prints its events.")
@click.option("--schedules", type=click.IntRange(1), help="Runs so many schedules.")
@click.option("--load", is_flag=True, help="Prints the S3 requests of fleets up to 10,000 endpoints.")
@click.option("--first", default=0, show_default=True, help="The seed of the first schedule.")
@click.option("--processes", default=2, show_default=True, type=click.IntRange(1))
@click.option("--stop", is_flag=True, help="Stops at the first violation.")
def main(
    instances: int,
    out: Path,
    seed: int | None,
    schedules: int | None,
    load: bool,
    first: int,
    processes: int,
    stop: bool,
) -> None:
    """Simulates fleets in virtual time, on the product's own code."""
    if seed is not None:
        sys.exit(_print_one(seed))
    if schedules is not None:
        sys.exit(_run_many(range(first, first + schedules), processes, stop=stop))
    if load:
        sys.exit(load_table())
    sys.exit(plotted_starts(instances, out))


def _print_one(seed: int) -> bool:
    trace: list[str] = []
    problem = broken(seed, trace)
    click.echo(Schedule.drawn(seed))
    for line in trace:
        click.echo(line)
    if problem is not None:
        click.echo(f"VIOLATION: {problem.problem}")
    return problem is not None


def _run_many(seeds: range, processes: int, *, stop: bool) -> bool:
    began, done, wrong = time.monotonic(), 0, 0
    for count, found in run_all(seeds, processes):
        done, wrong = done + count, wrong + len(found)
        for one in found:
            click.echo(f"seed {one.seed}: {one.problem}")
        if found and stop:
            break
    seconds = time.monotonic() - began
    rate = f"{done / seconds * 60:,.0f} a minute"
    click.echo(f"{done:,} schedules from seed {seeds[0]} in {seconds:.0f} s ({rate}); {wrong} violations")
    return bool(wrong)


if __name__ == "__main__":
    main()
