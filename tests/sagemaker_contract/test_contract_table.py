"""The table of the contract: each row has a source, or is marked, and a test that types what the source spells."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import yaml

from tests.cited_tests import source_of

HERE = Path(__file__).parent
TABLE: dict[str, Any] = yaml.safe_load((HERE / "contract.yaml").read_text(encoding="utf-8"))
ROWS: list[dict[str, str]] = [row for rows in TABLE["facts"].values() for row in rows]
PAGE = (HERE.parents[1] / "docs" / "sagemaker.md").read_text(encoding="utf-8")
# The tables of cases in this folder, by the test that takes its cases from them.
CASES = {
    "test_contract_container::test_exchange": "EXCHANGES",
    "test_contract_container::test_variable": "VARIABLES",
    "test_contract_models::test_fact": "FACTS",
    "test_contract_local::test_time": "TIMES",
    "test_contract_local::test_variables_of_a_transform_job": "VARIABLES",
}


def test_the_table_has_110_rows_and_none_twice() -> None:
    facts = [row["fact"] for row in ROWS]
    assert len(facts) == len(set(facts)) >= 110
    assert all(set(row) == {"fact", "source", "typed", "here", "local", "test"} for row in ROWS)


def test_each_test_types_what_the_source_spells() -> None:
    missing = [row["fact"] for row in ROWS if row["typed"] not in source_of(row["test"])]
    assert missing == []


def test_each_fact_has_a_source_or_is_listed_as_one_without() -> None:
    assert {row["source"] for row in ROWS} == set(TABLE["sources"])
    unlisted = [row["fact"] for row in ROWS if (row["source"] == "none") is not (f"- {row['fact']}" in PAGE)]
    assert unlisted == []


def test_each_case_is_a_row() -> None:
    """A case of a request, a variable or a fact that no row names would be one of our own."""
    named = {row["test"] for row in ROWS}
    unnamed = [f"{test}[{case}]" for test, table in CASES.items() for case in cases(test, table)]
    assert [case for case in unnamed if case not in named] == []


def cases(test: str, table: str) -> list[str]:
    tree = ast.parse((HERE / f"{test.partition('::')[0]}.py").read_text(encoding="utf-8"))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    for node in assigned:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name) and target.id == table and isinstance(node.value, ast.Dict):
            return [
                key.value for key in node.value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
    raise AssertionError(f"{test} has no table {table}")


def test_the_versions_of_the_sources_are_those_of_the_tests() -> None:
    """A new botocore is read by the tests; the table then says which one."""
    lock = (HERE.parents[1] / "requirements" / "lock.txt").read_text(encoding="utf-8")
    locked = re.search(r"^botocore==(\S+)", lock, re.MULTILINE)
    assert locked
    for name in ("sagemaker", "runtime"):
        assert f"botocore {locked[1]}," in TABLE["sources"][name]
