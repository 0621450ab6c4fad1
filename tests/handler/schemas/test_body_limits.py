"""What one body may hold, on every schema and path: values, depth, lists and texts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from handler.errors import InvalidBody, InvalidField
from handler.schemas import body_limits
from handler.schemas.body_limits import LIMITS, FieldLimit
from handler.schemas.json_body import MAX_DEPTH, MAX_VALUES, decode


@pytest.mark.parametrize("item", [b"[]", b"1", b'""', b"{}", b'"\\""'])
def test_a_body_of_too_many_values_is_rejected_before_it_is_decoded(item: bytes) -> None:
    body = b'{"a":[' + b",".join([item] * (MAX_VALUES + 2)) + b"]}"
    with pytest.raises(InvalidBody, match=re.escape(f"more than {MAX_VALUES:,} values")):
        decode(body)


def test_a_prompt_of_the_longest_context_is_no_such_body() -> None:
    ids = list(range(131_072))
    assert decode(json.dumps({"prompt": ids}).encode()) == {"prompt": ids}


def test_what_stands_in_a_text_is_no_value_and_no_level() -> None:
    text = '[{,\\"' * MAX_VALUES
    assert decode(json.dumps({"prompt": text}).encode()) == {"prompt": text}


@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")])
def test_the_depth_of_a_body_has_a_bound(brackets: tuple[bytes, bytes]) -> None:
    opening, closing = brackets

    def nested(levels: int) -> bytes:
        return b'{"a":' + opening * levels + b"1" + closing * levels + b"}"

    assert decode(nested(MAX_DEPTH - 1))
    with pytest.raises(InvalidBody, match=f"nested too deeply: more than {MAX_DEPTH} levels"):
        decode(nested(MAX_DEPTH))


@pytest.mark.timeout(30)
def test_a_text_without_an_end_takes_no_longer_than_one_with_an_end() -> None:
    with pytest.raises(InvalidBody):
        decode(b'{"a":"' + b'\\",[' * 2_000_000)


def values_of(limit: FieldLimit, count: int) -> Any:
    return {str(index): index for index in range(count)} if limit.field.endswith(("bias", "args")) else [1] * count


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.field)
@pytest.mark.parametrize("prefix", ["", "parameters."])
def test_each_field_has_its_bound(limit: FieldLimit, prefix: str) -> None:
    body_limits.check({limit.field: values_of(limit, limit.items)}, prefix)
    with pytest.raises(InvalidField) as raised:
        body_limits.check({limit.field: values_of(limit, limit.items + 1)}, prefix)
    assert raised.value.param == prefix + limit.field
    if limit.characters is not None:
        with pytest.raises(InvalidField, match=f"{limit.characters:,} characters"):
            body_limits.check({limit.field: ["a" * (limit.characters // 2), "a" * limit.characters]})
