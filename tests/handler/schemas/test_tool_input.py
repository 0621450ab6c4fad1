"""The input of a tool's call, from whatever a model has written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handler.schemas.anthropic.message_reply import tool_input
from handler.schemas.reply import encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.text() | st.text(alphabet=' \n{}[]":,\\utrefalsn0123456789.-+'))
def test_any_text_is_an_object(text: str) -> None:
    given = tool_input(text)
    assert json.loads(encode(given)) == json.loads(json.dumps(given), parse_constant=lambda name: None)


@given(st.dictionaries(st.text(), JSON, max_size=3), st.booleans(), st.floats(0, 1), st.sampled_from(["", " ", "\n  "]))
def test_what_is_cut_off_is_an_object(value: dict[str, object], ascii_only: bool, share: float, before: str) -> None:
    whole = before + json.dumps(value, ensure_ascii=ascii_only)
    found = tool_input(whole[: int(len(whole) * share)])
    assert found.keys() <= value.keys()


@pytest.mark.parametrize(
    "text", ["", " ", "\n", "[1]", "1", "null", '"text"', "no JSON", "[" * 100_000, '{"a":' * 100_000]
)
def test_what_spells_no_object_is_an_empty_one(text: str) -> None:
    assert tool_input(text) == {}


def test_an_object_is_kept_and_what_is_no_number_is_null() -> None:
    assert tool_input('{"city": "Bern", "days": [1, 2') == {"city": "Bern", "days": [1, 2]}
    assert json.loads(encode(tool_input('{"city": "Bern", "high": NaN, "low": 1e999}'))) == {
        "city": "Bern",
        "high": None,
        "low": None,
    }
