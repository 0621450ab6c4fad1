"""S3 requests of fleets that start within a minute and find nothing compiled, by kind: the table in docs/scale.md."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click

from tests.simulation.fleet import Fleet, Scenario, simulate

FLEETS = [Scenario(instances) for instances in (100, 1000, 10_000)]
FLEETS += [Scenario(endpoints * 2, endpoints=endpoints) for endpoints in (100, 1000, 10_000)]
READS = ("get", "read", "head", "list")


@dataclass(frozen=True, slots=True)
class Load:
    """Requests a second.

    :param store: in its busiest second, reads without those of the artifacts' files, which are few and small here.
    :param writes: in their busiest second.
    :param polls, renewals: of leases, on the mean while the models compile.
    """

    store: int
    writes: int
    polls: float
    renewals: float


def load_of(scenario: Scenario, fleet: Fleet) -> Load:
    seconds = [_summed(counts) for _, counts in sorted(fleet.bucket.requests.items())]
    quiet = range(int(scenario.within) + 60, int(scenario.compile))
    during = sum((fleet.bucket.requests[second] for second in quiet), Counter[str]())
    return Load(
        store=max(counts["store"] for counts in seconds),
        writes=max(counts["writes"] for counts in seconds),
        polls=during["get leases"] / len(quiet),
        renewals=during["put leases"] / len(quiet),
    )


def _summed(counts: Counter[str]) -> Counter[str]:
    reads = sum(count for step, count in counts.items() if step.startswith(READS) and step != "read objects")
    return Counter(store=reads, writes=counts.total() - reads - counts["read objects"])


def load_table() -> bool:
    """Prints a line for each fleet. Returns whether an instance got no artifacts, or an endpoint compiled twice."""
    failed = False
    memory = Path("/dev/shm")
    click.echo("endpoints  instances  store reads/s  writes/s  polls/s  renewals/s  last ready  requests")
    for scenario in FLEETS:
        with tempfile.TemporaryDirectory(prefix="fleet-", dir=memory if memory.is_dir() else None) as place:
            fleet = simulate(scenario, Path(place))
        load = load_of(scenario, fleet)
        failed |= fleet.compiles["begun"] != scenario.endpoints
        failed |= any(instance.acquired is None for instance in fleet.instances)
        last = max(instance.ended or 0.0 for instance in fleet.instances)
        counts = f"{scenario.endpoints:9,}  {scenario.instances:9,}  {load.store:13,}  {load.writes:8,}"
        means = f"{load.polls:7,.1f}  {load.renewals:10,.1f}"
        click.echo(f"{counts}  {means}  {last:8,.0f} s  {sum(fleet.rates().values()):,}")
    return failed
