"""Writes the tables of docs/predictions.md. A test compares them.

`python -m tests.model_packaging.sizing.comparison_page`
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.model_packaging.sizing.published_figures import METRICS, ComparedFigure, compared, median_error, published

PREDICTIONS = Path(__file__).parents[3] / "docs" / "predictions.md"
TABLE = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
WORST = 8


def comparison_tables() -> dict[str, str]:
    """Returns the tables by their names in the page's marks."""
    figures = compared()
    judged = [figure for figure in figures if figure.judged]
    return {
        "summary": _summary(judged),
        "worst": _rows(sorted(judged, key=lambda figure: -abs(figure.error))[:WORST]),
        "judged": _runs(judged),
        "fitted": _runs([figure for figure in figures if not figure.judged]),
        "not-compared": "".join(
            [
                "| figure | why |\n|---|---|\n",
                *(f"| {one['source']} | {one['why']} |\n" for one in published()["not_compared"]),
            ]
        ),
    }


def completed(text: str) -> str:
    """Returns the page with newly computed tables."""
    tables = comparison_tables()
    return TABLE.sub(lambda match: f"{match[1]}{tables[match[2]]}{match[3]}", text)


def groups(judged: Sequence[ComparedFigure]) -> dict[str, list[ComparedFigure]]:
    """The judged figures by what they are of."""
    found = {"all": list(judged)}
    for metric in METRICS:
        found[metric] = [figure for figure in judged if figure.metric == metric]
    for name in ("NxD Inference", "native plugin", "Transformers NeuronX"):
        found[name] = [figure for figure in judged if figure.run["software"].startswith(name)]
    return found


def _summary(judged: Sequence[ComparedFigure]) -> str:
    rows = [
        f"| {name} | {len(figures)} | {median_error(figures):.1%} | {max(abs(one.error) for one in figures):.0%} |\n"
        for name, figures in groups(judged).items()
    ]
    return "| figures | number | median error | largest error |\n|---|---|---|---|\n" + "".join(rows)


def _rows(figures: Sequence[ComparedFigure]) -> str:
    head = (
        "| model | instance, degree | batch | input, output | figure | published | predicted | error |\n" + "|---" * 8
    )
    rows = [
        f"| {one.run['model']} | {one.run['instance']}, {one.run['degree']} | {one.run['batch']} "
        f"| {one.run['input']}, {one.run['output']} | {one.metric} | {one.published:g} | {one.predicted:.4g} "
        f"| {one.error:+.0%} |\n"
        for one in figures
    ]
    return f"{head}|\n{''.join(rows)}"


def _runs(figures: Sequence[ComparedFigure]) -> str:
    """One row a run: each figure as published, predicted and error."""
    by_run: dict[int, list[ComparedFigure]] = {}
    for figure in figures:
        by_run.setdefault(id(figure.run), []).append(figure)
    head = "| model | software | instance, degree | batch | length | input, output | TPOT ms | TTFT ms | tokens/s |\n"
    rows = []
    for found in by_run.values():
        run = found[0].run
        cells = {one.metric: f"{one.published:g}, {one.predicted:.4g} ({one.error:+.0%})" for one in found}
        rows.append(
            f"| {run['model']} | {run['software']} | {run['instance']}, {run['degree']} | {run['batch']} "
            f"| {run['length']} | {run['input']}, {run['output']} "
            f"| {' | '.join(cells.get(metric, '-') for metric in METRICS)} |\n"
        )
    return head + "|---" * 9 + "|\n" + "".join(rows)


if __name__ == "__main__":
    PREDICTIONS.write_text(completed(PREDICTIONS.read_text(encoding="utf-8")), encoding="utf-8")
