"""`python -m tests.simulation`: simulates starts of a fleet in virtual time.

Without options: one fleet of 1,000 instances, with a plot (`start_plot`). With `--schedules`: many small fleets in
which everything goes wrong. With `--load`: the requests of fleets up to 10,000 endpoints, as a table (`load_table`).
With `--seed`: one of the schedules, with each of its events.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from tests.simulation.load_table import load_table
from tests.simulation.schedules.schedule import Schedule
from tests.simulation.schedules.schedule_batches import broken, run_all
from tests.simulation.start_plot import plotted_starts


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
