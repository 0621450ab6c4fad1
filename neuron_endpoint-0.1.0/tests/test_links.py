"""The README and docs/: what they link to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        if anchor and target.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, anchor


def test_each_row_of_the_comparison_names_a_test() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    assert len(rows) > 15
    assert not [row for row in rows if "../tests/" not in row.split("|")[2]]
