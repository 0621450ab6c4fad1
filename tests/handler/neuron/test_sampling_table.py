from __future__ import annotations

from pathlib import Path

from sampling_table import table


def test_the_readme_has_the_table_of_what_the_code_refuses() -> None:
    assert table() in (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
