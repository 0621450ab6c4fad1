from __future__ import annotations

from pathlib import Path

from tests.handler.neuron.sampling_table import table


def test_the_page_has_the_table_of_what_the_code_refuses() -> None:
    assert table() in (Path(__file__).parents[3] / "docs" / "neuron-lines.md").read_text(encoding="utf-8")
