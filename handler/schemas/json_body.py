"""Decodes a request body to one JSON object, strictly by the JSON standard.

msgspec's decoder is strict, other than Python's: it rejects NaN, 1e999 and lone surrogates. Invalid UTF-8 and nesting
of 10,000 levels are errors rather than crashes (seen on msgspec 0.18 to 0.20).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from handler.errors import InvalidBody

Document = dict[str, Any]
# Values of a body: at most 0.1 s of decoding (empty lists; numbers take 1 ms). The longest prompt of ids has 131,072.
MAX_VALUES: Final = 262_144
# A schema of 64 levels takes xgrammar 0.07 s, of 200 levels 1.6 s, of 900 minutes (0.1.29).
MAX_DEPTH: Final = 64
# Possessive, and its end may be missing: linear on whatever bytes there are.
TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
BRACKETS: Final = re.compile(rb"[\[\]{}]")


def decode(body: bytes) -> Document:
    """:raises InvalidBody: the body is no JSON object. The message describes the problem, without quoting the body."""
    if not body.strip():
        raise InvalidBody("it is empty")
    _check_size(body)
    try:
        document = msgspec.json.decode(body)
    except RecursionError:
        raise InvalidBody("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise InvalidBody(f"byte {_invalid_byte(body)} is not valid UTF-8") from None
    except msgspec.DecodeError as error:
        lines = "trailing characters" in str(error) and len(body.splitlines()) > 1
        fix = "; one JSON object on each line has the content type application/jsonlines" if lines else ""
        raise InvalidBody(f"it is not valid JSON ({error}){fix}") from None
    if not isinstance(document, dict):
        raise InvalidBody(f"it is a JSON {_kind(document)}, not an object")
    return document


def _check_size(body: bytes) -> None:
    """Bounds what the decoder makes, before it makes it: it holds the interpreter, and each value is an object.

    A comma or a bracket within a text counts only if there are so many that the texts have to be left out.

    :raises InvalidBody: more than MAX_VALUES values, or nested more than MAX_DEPTH deep.
    """
    if _separators(body) > MAX_VALUES:
        values = 0
        for piece in _outside_texts(body):
            values += _separators(piece)
            if values > MAX_VALUES:
                raise InvalidBody(f"it has more than {MAX_VALUES:,} values")
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for piece in _outside_texts(body):
        for bracket in BRACKETS.findall(piece):
            depth += 1 if bracket in b"[{" else -1
            if depth > MAX_DEPTH:
                raise InvalidBody(f"it is nested too deeply: more than {MAX_DEPTH} levels")


def check_brackets(body: bytes) -> None:
    """Bounds the lists and objects of a document, of which a client may send arrays of any number of numbers.

    :raises InvalidBody: more than MAX_VALUES lists and objects.
    """
    if sum(body.count(bracket) for bracket in (b"[", b"{")) <= MAX_VALUES:
        return
    if sum(len(BRACKETS.findall(piece)) for piece in _outside_texts(body)) > 2 * MAX_VALUES:
        raise InvalidBody(f"it has more than {MAX_VALUES:,} lists and objects")


def _separators(piece: bytes) -> int:
    return piece.count(b",") + piece.count(b"[") + piece.count(b"{")


def _outside_texts(body: bytes) -> Iterator[bytes]:
    """What is between the texts of a JSON document. A thread that reads a large one lets others run in between."""
    begin = 0
    for text in TEXT.finditer(body):
        yield body[begin : text.start()]
        begin = text.end()
    yield body[begin:]


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
