"""Draws the steps of a start as bars on one axis. `serve` writes them to its log at the end of a start."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

WIDTH = 50  # characters of the axis
EVENT = '"timeline"'


def last_start(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Returns the steps of the last start in a log. Empty if no start has ended."""
    steps: list[dict[str, Any]] = []
    for line in lines:
        if EVENT in line and line.startswith("{"):
            try:
                document = json.loads(line)
            except ValueError:
                continue
            if document.get("event") == "timeline":
                steps = document["steps"]
    return steps


def bars(steps: Sequence[dict[str, Any]]) -> list[str]:
    """Returns one line for each step: its bar, its seconds, and what it waited for."""
    if not steps:
        return ["No start has ended in these lines of the log."]
    total = max(step["end_seconds"] for step in steps) or 1.0
    title = max(len(step["step"]) for step in steps)
    lines = [f"{'':{title}}  0 s{f'{total:.1f} s':>{WIDTH - 3}}"]
    for step in steps:
        begin, end = (round(step[name] / total * WIDTH) for name in ("begin_seconds", "end_seconds"))
        bar = " " * begin + ("#" * (end - begin) or "|")
        after = f"  after {', '.join(step['waited_for'])}" if step["waited_for"] else ""
        lines.append(
            f"{step['step']:{title}}  {bar:{WIDTH + 1}} {step['end_seconds'] - step['begin_seconds']:6.1f} s{after}"
        )
    return lines
