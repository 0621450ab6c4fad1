"""The table of facts: every test that it names is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split(" | ")]
    for line in (Path(__file__).parent / "README.md").read_text(encoding="utf-8").splitlines(keepends=True)
    if line.startswith("| ") and "**" not in line and not line.startswith("| fact")
]


@cache
def source(name: str) -> str:
    (path,) = TESTS.rglob(f"{name}.py")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", row[0])[:60])
def test_a_fact_has_a_test_of_the_stand_in_and_one_of_our_answer(row: list[str]) -> None:
    fact, kept, answer = row
    assert fact
    for cell, where in ((kept, "neuron_contract"), (answer, "")):
        if cell == "-" and cell is kept:
            continue
        found = re.fullmatch(r"`(\w+)::(\w+)(?:\[([^`\]]+)\]?)?`", cell)
        assert found, cell
        file, test, case = found.groups()
        assert re.search(rf"^(async )?def {test}\(", source(file), re.MULTILINE), cell
        assert not case or f'"{case}' in source(file), cell
        assert not where or next(TESTS.rglob(f"{file}.py")).parent.name == where
