from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handler.errors import InvalidBody
from handler.schemas.json_body import decode

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
