"""docs/guides.md: each test that it names exists, and mentions the setting of its row."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = Path(__file__).parents[2] / "docs" / "guides.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "::" in line
]


@cache
def module(name: str) -> tuple[str, ast.Module]:
    (path,) = TESTS.rglob(f"{name}.py")
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text)


def what_it_tests(file: str, test: str, case: str | None) -> str:
    """The source of a test with its parameters, or of the one case of a table. Tables it names count too."""
    text, tree = module(file)
    if case is not None:
        dicts = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
        pairs = [pair for node in dicts for pair in zip(node.keys, node.values, strict=True)]
        cases = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == case]
        assert cases, f"{file} has no case {case}"
        parts: list[ast.AST] = list(cases[:1])
    else:
        found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == test]
        assert found, f"{file} has no {test}"
        parts = [*found, *found[0].decorator_list]
    used = {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}
    targets = (node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign))
    for node in targets:
        names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
        parts += [node] if names & used else []
    return f"{case} " + " ".join(ast.get_source_segment(text, part) or "" for part in parts)


def test_the_table_is_read() -> None:
    assert len(ROWS) > 90
    assert {row[0].partition(":")[0] for row in ROWS} == {
        "user guide",
        "installation",
        "405B tutorial",
        "transformers-neuronx",
        "proposal",
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", f"{row[0]} {row[2]}")[:70])
def test_a_fact_has_a_test_that_mentions_its_setting(row: list[str]) -> None:
    place, setting, asks, here, cited = row
    assert place
    assert asks
    assert here.startswith(("works", "rejected", "warned of", "said"))
    named = re.fullmatch(r"`(\w+)::(\w+)(?:\[(.+)\])?`", cited)
    assert named, cited
    file, test, case = named.groups()
    assert re.search(rf"^def {test}\(", module(file)[0], re.MULTILINE), cited
    assert setting.strip("`").lower() in what_it_tests(file, test, case).lower(), (setting, cited)
