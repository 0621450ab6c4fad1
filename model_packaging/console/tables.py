"""Tables for a terminal or a pipe. Imported only when needed: rich takes longer to load than a check takes to run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from handler.config.finding import Finding, Severity

if TYPE_CHECKING:
    from handler.config.config_rows import Row
    from handler.json_value import Json
    from handler.neuron.engine_plan import EnginePlan

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "dim"}


def settings_table(rows: Iterable[Row]) -> Table:
    """Returns a table of field, value, source and meaning. Overridden values are below the effective one."""
    table = Table("setting", "value", "from", "what it is")
    for row in rows:
        value = Text(json_text(row.value))
        for weaker in row.overridden:
            value.append(f"\ninstead of {weaker}", style="dim")
        table.add_row(Text(row.field), value, Text(row.source), Text(row.doc, style="dim"))
    return table


def findings_table(findings: Iterable[Finding]) -> Table:
    """Returns a table with one finding per row."""
    table = Table("setting", "why, and what to do", show_lines=True)
    for finding in findings:
        what = Text(finding.severity.value, style=STYLES[finding.severity]).append(f" {finding.code}", style="dim")
        table.add_row(
            what.append(f"\n{finding.setting}", style="default"),
            Text(f"{finding.why.rstrip('.')}.\n").append(finding.fix, style="bold"),
        )
    return table


def plan_table(plan: EnginePlan) -> Table:
    """Returns a table of the engine's arguments and environment."""
    rows = [(name, json_text(value)) for name, value in {**plan.engine_args, **plan.env}.items()]
    return plain_table(("argument or variable", "value"), rows, f"line {plan.line}")


def plain_table(titles: Iterable[str], rows: Iterable[Iterable[str]], title: str = "") -> Table:
    """Returns a table of plain text."""
    table = Table(*titles, title=title or None, title_justify="left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def memory_line(memory: dict[str, Json]) -> str:
    """Returns the memory estimate as a sentence."""
    core, host = memory["core"], memory["host"]
    assert isinstance(core, dict)
    assert isinstance(host, dict)
    return (
        f"Memory of a logical core on {memory['instance']}: {core['total_gib']} of {core['available_gib']} GiB "
        f"({memory['verdict']}); host: {host['needed_gib']} of {host['available_gib']} GiB."
    )


def show(*parts: Table | str) -> None:
    """Prints sentences and tables. In a pipe a row is a line of tab-separated cells, and nothing is wrapped."""
    console = Console()
    for part in parts:
        if not console.is_terminal:
            click.echo(part if isinstance(part, str) else _plain(part))
        else:
            console.print(
                _fitted(part, console.width) if isinstance(part, Table) else part, markup=False, highlight=False
            )


def _plain(table: Table) -> str:
    rows = zip(*_cells(table), strict=True)
    lines = ["\t".join(" ".join(cell.split()) for cell in row) for row in rows]
    return "\n".join([str(table.title), *lines] if table.title else lines)


def _cells(table: Table) -> list[list[str]]:
    """The text of each column, its title first."""
    return [[str(cell) for cell in (column.header, *column.cells)] for column in table.columns]


def _fitted(table: Table, width: int) -> Table:
    """Returns the table with columns in which every word is whole; or a line for each cell, if there is no room."""
    cells = _cells(table)
    whole = [max(cell_len(line) for cell in column for line in (cell.splitlines() or [""])) for column in cells]
    widths = [max(map(cell_len, " ".join(column).split()), default=0) for column in cells]
    room = width - 3 * len(cells) - 1  # a column has a border and two spaces
    if sum(widths) > room:
        return _stacked(table)
    while sum(widths) < room and widths != whole:
        missing = [full - now for full, now in zip(whole, widths, strict=True)]
        widths[missing.index(max(missing))] += 1
    for column, found in zip(table.columns, widths, strict=True):
        column.width = found
    return table


def _stacked(table: Table) -> Table:
    """Returns a table with a line for each cell, after its column's title."""
    stacked = Table("", "", box=None, show_header=False, title=table.title, title_justify="left")
    stacked.columns[1].overflow = "fold"
    for row in zip(*(column.cells for column in table.columns), strict=True):
        for column, cell in zip(table.columns, row, strict=True):
            stacked.add_row(Text(str(column.header), style="dim"), cell)
        stacked.add_row()
    return stacked


def json_text(value: Json) -> str:
    """Returns a JSON value as a person reads it: a dash for null, a string without its quotes."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
