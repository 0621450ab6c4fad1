"""What one body may hold, on every schema and path: values, depth, lists and texts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


SECRET = "correct horse battery staple"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "it is empty"),
        (b" \r\n\t", "it is empty"),
        (b"messages=hello", "not valid JSON"),
        (b'{"a": 1', "not valid JSON"),
        (b'{"a": 1} {"b": 2}', "not valid JSON"),
        (b"{'a': 1}", "not valid JSON"),
        (b'{"a": NaN}', "not valid JSON"),
        (b'{"a": Infinity}', "not valid JSON"),
        (b'{"a": 1e999}', "not valid JSON"),
        (b'{"a": 01}', "not valid JSON"),
        (b'{"a": "\\ud800"}', "not valid JSON"),
        (b'{"a": "\\ud800\\u0041"}', "not valid JSON"),
        (b'{"a": "\xff\xfe"}', "not valid UTF-8"),
        (b'\xef\xbb\xbf{"a": 1}', "not valid JSON"),
        ('{"a": 1}'.encode("utf-16"), "not valid JSON"),
        (b"[" * 10_000, "nested too deeply"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "nested too deeply"),
        (b"[]", "a JSON array"),
        (b'"text"', "a JSON string"),
        (b"12", "a JSON number"),
        (b"1.5", "a JSON number"),
        (b"true", "a JSON boolean"),
        (b"null", "a JSON null"),
        (b"9" * 5000, ""),
    ],
)
def test_what_is_no_json_object_is_refused_saying_why(body: bytes, problem: str) -> None:
    with pytest.raises(InvalidBody) as caught:
        decode(body)
    assert problem in caught.value.message
    assert caught.value.status == 400
    assert caught.value.document()["error"]["type"] == "invalid_request_error"


def test_the_message_does_not_quote_the_body() -> None:
    for body in (f'{{"prompt": "{SECRET}', f'["{SECRET}"]', f'{{"{SECRET}": }}', f'{{"a": "{SECRET}\\ud800"}}'):
        with pytest.raises(InvalidBody) as caught:
            decode(body.encode())
        assert SECRET not in caught.value.message


def test_the_byte_that_is_named_is_the_one_that_is_wrong() -> None:
    with pytest.raises(InvalidBody, match="byte 6 is not valid UTF-8"):
        decode(b'{"a":"\xff"}')


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_any_object_is_read_as_python_reads_it(document: dict[str, object]) -> None:
    assert decode(json.dumps(document).encode()) == document
    assert decode(json.dumps(document, ensure_ascii=False).encode()) == document
