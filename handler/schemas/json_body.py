"""From bytes to one JSON object, strictly: what the JSON standard forbids is refused before anyone acts on it.

msgspec's decoder is strict where Python's is not: NaN and 1e999 are no numbers, lone surrogates are no text, and
invalid UTF-8 or 10,000-deep nesting is an error rather than a crash (seen on msgspec 0.18 to 0.20).
"""

from __future__ import annotations

from typing import Any

import msgspec

from handler.errors import InvalidBody

Document = dict[str, Any]


def decode(body: bytes) -> Document:
    """The body's one JSON object.

    :raises InvalidBody: saying what is wrong, without quoting the body.
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
    """msgspec counts from the string's beginning; a user looks for it in the body."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _kind(value: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
