"""The table of facts: every test that it names is there, and is about words of its fact."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cited_tests import source_of

TESTS = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split(" | ")]
    for line in (Path(__file__).parent / "README.md").read_text(encoding="utf-8").splitlines(keepends=True)
    if line.startswith("| ") and "**" not in line and not line.startswith("| fact")
]


# Words that say nothing about what a fact is about.
PLAIN = ("without", "never", "beside", "where", "their", "other", "whole", "known", "there", "start", "starts")


def stems(text: str) -> set[str]:
    """The first five letters of each word."""
    return {word.lower()[:5] for word in re.findall("[A-Za-z]{4,}", text)} - {word[:5] for word in PLAIN}


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
        source = source_of(f"{file}::{test}")
        assert not case or f'"{case}' in source, cell
        assert stems(fact) & stems(source), (fact, cell)
        assert not where or next(TESTS.rglob(f"{file}.py")).parent.name == where
