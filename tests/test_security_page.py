"""docs/security-review.md: each test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security-review.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_each_named_test_exists() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > 30
    missing = [(path, name) for path, name in named if not re.search(rf"^def {name}", text_of(path), re.MULTILINE)]
    assert missing == []


def test_each_row_of_what_was_seen_names_a_test() -> None:
    table = PAGE.partition("| seen | test |")[2].partition("\n\n")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ") and "---" not in row]
    assert len(rows) >= 24
    assert [row for row in rows if "::" not in row] == []


def test_each_input_names_a_test() -> None:
    table = PAGE.partition("| input | handling |")[2].partition("\n\n")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ")]
    assert len(rows) >= 20
    assert [row for row in rows if "../tests/" not in row] == []


def text_of(path: str) -> str:
    file = ROOT / path
    return file.read_text() if file.exists() else ""
