"""Decodes a request body to one JSON object, strictly by the JSON standard.

msgspec's decoder is strict, other than Python's: it rejects NaN, 1e999 and lone surrogates. Invalid UTF-8 and nesting
of 10,000 levels are errors rather than crashes (seen on msgspec 0.18 to 0.20).
"""

from __future__ import annotations

from typing import Any

import msgspec

from handler.errors import InvalidBody

Document = dict[str, Any]


def decode(body: bytes) -> Document:
    """The JSON object in a body.

    :raises InvalidBody: the message describes the problem, without quoting the body.
    """
    if not body.strip():
        raise InvalidBody("it is empty")
    try:
        document = msgspec.json.decode(body)
    except RecursionError:
        raise InvalidBody("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise InvalidBody(f"byte {_invalid_byte(body)} is not valid UTF-8") from None
    except msgspec.DecodeError as error:
        raise InvalidBody(f"it is not valid JSON ({error})") from None
    if not isinstance(document, dict):
        raise InvalidBody(f"it is a JSON {_kind(document)}, not an object")
    return document


def _invalid_byte(body: bytes) -> int:
    """The position of the first invalid byte in the body. msgspec gives its position in the JSON string."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _kind(value: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
