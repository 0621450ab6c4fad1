"""docs/configuration.md agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from handler.config.fields import fields
from handler.config.loading.config_loader import load
from handler.errors import SettingError
from tests.handler.config import settings_reference as reference

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
ROW = re.compile(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", re.MULTILINE)
# What each kind of field takes, where it has no choices.
VALUES = (
    "3",
    "true",
    '["a"]',
    "[3]",
    '{"a": "b"}',
    "bfloat16",
    "draft_model",
    "prefill",
    "tgi",
    "json",
    "none",
    "wait",
)
MORE = ("1", '{"seed": 3}', "SINGLE_RECORD", "string", "8080-8090", "env:NAME")


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference.text(), "run `make docs`"


def test_every_field_has_a_row_and_every_group_its_field() -> None:
    assert [name for name, _ in ROW.findall(reference.text())] == list(fields())
    assert set(reference.GROUPS.values()) <= fields().keys()
    assert {kind.kind for kind in fields().values()} <= reference.KINDS.keys()


@pytest.mark.parametrize(("field", "further"), ROW.findall(reference.text()))
def test_each_name_on_the_page_sets_its_field(field: str, further: str) -> None:
    for name in (f"ENDPOINT_{field.upper()}", *re.findall(r"`(\w+)`", further)):
        assert _sets(name, field), name


def _sets(name: str, field: str) -> bool:
    for value in (*VALUES, *MORE):
        try:
            found = load({name: value})
        except SettingError:
            continue
        return any(
            of == field or of.startswith(f"{field}.")
            for of, source in found.sources.items()
            if source.name.startswith(name)
        )
    return False
