"""Writes the tables of docs/scale.md: `python -m model_packaging.capacity.page`. A test compares them."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from pathlib import Path

from model_packaging.capacity.fleet_size import Demand, Fleet, fleet_for
from model_packaging.capacity.limit_usage import strains
from model_packaging.capacity.measured import S3_READS, SERVERS, MeasuredServer
from model_packaging.console.output import size_text
from model_packaging.marked_tables import with_tables

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
REQUESTS = (10, 1_000, 100_000)


def tables() -> dict[str, str]:
    """Returns the tables by their names in the page's marks."""
    fleets = {f"fleet-{name}": _fleets(server) for name, server in SERVERS.items()}
    return fleets | {f"strain-{name}": _strains(server) for name, server in SERVERS.items()}


def filled(text: str) -> str:
    """Returns the page with newly computed tables."""
    return with_tables(text, tables())


def number(value: float) -> str:
    """Formats a number for people: three significant digits, or whole with thousands separators."""
    if value == inf:
        return "-"
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _fleets(server: MeasuredServer) -> str:
    fleets = [fleet_for(Demand(requests=requests), server) for requests in REQUESTS]

    def row(name: str, of: Iterable[str]) -> str:
        return "| " + " | ".join((name, *of)) + " |\n"

    return (
        row("requests a second", (number(fleet.demand.requests) for fleet in fleets))
        + "|---" * (len(fleets) + 1)
        + "|\n"
        + row("tokens a second", (number(fleet.tokens) for fleet in fleets))
        + row("instances", (number(fleet.instances) for fleet in fleets))
        + row("requests in flight", (number(fleet.in_flight) for fleet in fleets))
        + row("cost an hour, at 1 an instance-hour", (number(fleet.cost_hour) for fleet in fleets))
        + row("cost of a million tokens, at the same", (number(fleet.cost_million) for fleet in fleets))
        + row("S3 reads of a start of all", (number(fleet.reads) for fleet in fleets))
        + row("bytes of it", (size_text(fleet.read_bytes) for fleet in fleets))
        + row("reads a second, all at once", (number(fleet.read_rate) for fleet in fleets))
        + row("start of one instance, at most", (f"{number(fleet.start)} s" for fleet in fleets))
        + row(
            f"start of all where one prefix gives {S3_READS:,} reads a second, at least",
            (f"{number(_throttled(fleet))} s" for fleet in fleets),
        )
    )


def _throttled(fleet: Fleet) -> float:
    return max(fleet.start, fleet.reads / S3_READS)


def _strains(server: MeasuredServer) -> str:
    fleet = fleet_for(Demand(requests=1000), server)
    rows = [
        f"| {strain.what} | {number(strain.needed)} | {_limit(strain.limit)} {strain.unit} "
        f"| {number(strain.requests(fleet))} | {strain.then} |\n"
        for strain in strains(fleet)
    ]
    head = "| at 1,000 requests a second | needs | of | met at requests/s | then |\n|---|---|---|---|---|\n"
    return head + "".join(rows)


def _limit(limit: float | None) -> str:
    return "your quota of" if limit is None else number(limit)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
