"""Tables for a terminal. Imported only when needed: rich takes longer to load than a check takes to run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

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
    table = Table()
    for title in ("setting", "value", "from"):
        table.add_column(title, overflow="fold")
    table.add_column("what it is")
    for row in rows:
        value = Text(json_text(row.value))
        for weaker in row.overridden:
            value.append(f"\ninstead of {weaker}", style="dim")
        table.add_row(Text(row.field), value, Text(row.source), Text(row.doc, style="dim"))
    return table


def findings_table(findings: Iterable[Finding]) -> Table:
    """Returns a table with one finding per row, readable at 80 columns."""
    table = Table(show_lines=True, expand=True)
    table.add_column("setting", ratio=2, overflow="fold")
    table.add_column("why, and what to do", ratio=5, overflow="fold")
    for finding in findings:
        what = Text(finding.severity.value, style=STYLES[finding.severity]).append(f" {finding.code}", style="dim")
        table.add_row(
            what.append(f"\n{finding.setting}", style="default"),
            Text(f"{finding.why}\n").append(finding.fix, style="bold"),
        )
    return table


def plan_table(plan: EnginePlan) -> Table:
    """Returns a table of the engine's arguments and environment."""
    table = Table("argument or variable", "value", title=f"line {plan.line}", title_justify="left")
    for name, value in plan.engine_args.items():
        table.add_row(Text(name), Text(json_text(value)))
    for name, text in plan.env.items():
        table.add_row(Text(name), Text(text))
    return table


def plain_table(titles: Iterable[str], rows: Iterable[Iterable[str]], title: str = "") -> Table:
    """Returns a table of plain text."""
    table = Table(*titles, title=title or None, title_justify="left")
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
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
    console = Console(soft_wrap=False)
    for part in parts:
        console.print(part, markup=False, highlight=False)


def json_text(value: Json) -> str:
    """Returns a JSON value as a person reads it: a dash for null, a string without its quotes."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
