"""Checks of a body of the vLLM path, before vLLM's models parse it, and translations of what they would not take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from handler.errors import InvalidField

MAX_REQUEST_ID: Final = 128
# The most messages, parts of a message, or texts.
MAX_ITEMS: Final = 4096
MAX_PARTS: Final = 8192
# Lists of texts, each of which becomes a request of its own to the engine. Token ids are one text.
TEXTS: Final = ("input", "documents", "queries", "items", "text_1", "text_2", "data_1", "data_2")


def check_items(document: Mapping[str, Any], conversation: str) -> None:
    """Limits lists that vLLM checks item by item. 4,096 items block the Python interpreter for up to 0.5 s.

    :param conversation: the field with the conversation.
    :raises InvalidField: there are more than `MAX_ITEMS` messages, or items in one or in a document to pool, or more
        than `MAX_PARTS` in all of these.
    """
    check_count(conversation, document.get(conversation))
    parts = 0
    for where, item in items_with_parts(document):
        inside = _items(item)
        _check_number(where, inside, MAX_ITEMS)
        parts += inside
    _check_number(conversation, parts, MAX_PARTS)


def items_with_parts(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The messages of a chat, the items of a response, and the documents to pool, with their places."""
    for field in ("messages", "query", *TEXTS):
        value = document.get(field)
        for index, item in enumerate(value if isinstance(value, list) else (value,)):
            if isinstance(item, dict):
                yield f"{field}[{index}]" if isinstance(value, list) else field, item


def _items(value: object) -> int:
    """The items of all lists in a JSON value."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_items, items)) + (len(value) if isinstance(value, list) else 0)


def check_texts(document: Mapping[str, Any]) -> None:
    """:raises InvalidField: there are more than `MAX_ITEMS` texts."""
    for field in TEXTS:
        items = document.get(field)
        if not (isinstance(items, list) and items and type(items[0]) is int):
            check_count(field, items)


def check_count(field: str, items: object) -> None:
    """:raises InvalidField: it is a list of more than `MAX_ITEMS` items."""
    _check_number(field, len(items) if isinstance(items, list) else 0, MAX_ITEMS)


def _check_number(field: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidField(field, f"it has {count:,} items; at most {most:,} are allowed")


def characters(value: object) -> int:
    """The number of characters of all strings in a JSON value."""
    if isinstance(value, str):
        return len(value)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(characters, items))


def check_integers(value: object, where: str = "") -> None:
    """:raises InvalidField: an integer, whose field is named, is above 64 bits and cannot be sent to vLLM's core."""
    if isinstance(value, dict):
        for key, item in value.items():
            check_integers(item, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for item in value:
            check_integers(item, where)
    elif type(value) is int and not -(2**63) <= value < 2**63:
        raise InvalidField(where[:MAX_REQUEST_ID], "it is larger than 64 bits")


def check_bias(bias: object) -> None:
    """:raises InvalidField: a key is not a token id, which vLLM's own error does not name, or a value not a number."""
    for key, value in bias.items() if isinstance(bias, dict) else ():
        if not (key.isascii() and key.isdecimal()):
            raise InvalidField("logit_bias", "its keys must be token ids, which are numbers")
        if type(value) not in (int, float):
            raise InvalidField(f"logit_bias.{key}", "it must be a number")


def check_request_id(request_id: object) -> None:
    """:raises InvalidField: it is not a short string of printable ASCII characters."""
    if request_id is None:
        return
    printable = isinstance(request_id, str) and request_id.isascii() and request_id.isprintable()
    if not isinstance(request_id, str) or not printable or len(request_id) > MAX_REQUEST_ID:
        raise InvalidField("request_id", f"it must have at most {MAX_REQUEST_ID} printable ASCII characters")


def fill_arguments(document: Mapping[str, Any]) -> None:
    """Makes the arguments of each tool call the text of a JSON object. null, "null" and "" are no arguments.

    vLLM reads them as JSON, and hands whatever that is to the template (0.13.0 to 0.32.0, entrypoints/chat_utils.py).

    :raises InvalidField: arguments are something else. The error names them.
    """
    for where, call in _calls(document):
        arguments = call.get("arguments")
        try:
            value = msgspec.json.decode(arguments or "null") if isinstance(arguments, str) else arguments
        except msgspec.DecodeError:
            value = arguments
        if not isinstance(value, dict | None):
            raise InvalidField(f"{where}.arguments", "it must be a JSON object, or the text of one")
        if not value or not isinstance(arguments, str):
            call["arguments"] = msgspec.json.encode(value or {}).decode()


def _calls(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The calls in the messages of a chat and in the input of a response, with their places."""
    for where, item in items_with_parts(document):
        calls = item.get("tool_calls")
        for number, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict) and isinstance(call.get("function"), dict):
                yield f"{where}.tool_calls[{number}].function", call["function"]
        if item.get("type") == "function_call":
            yield where, item


JSON_MODE: Final = {"type": "json_schema", "name": "object", "schema": {"type": "object"}}


def with_json_mode(response: dict[str, Any]) -> dict[str, Any]:
    """The body of a response with JSON mode as a schema: vLLM 0.16 raises for `json_object`, and 0.24 ignores it."""
    text = response.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    if not isinstance(text, dict) or not isinstance(form, dict) or form.get("type") != "json_object":
        return response
    return {**response, "text": {**text, "format": JSON_MODE}}


OLDER: Mapping[str, str] = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "guided_whitespace_pattern": "whitespace_pattern",
}


def with_structured_outputs(document: Mapping[str, Any]) -> dict[str, Any]:
    """The body with `structured_outputs` in place of vLLM's older fields.

    vLLM 0.12 removed them, and ignores them silently since then (vllm/entrypoints/openai/protocol.py of 0.11).

    :raises InvalidField: the body has fields of both kinds.
    """
    older = {name: document[name] for name in OLDER if document.get(name) is not None}
    translated = {name: value for name, value in document.items() if name not in OLDER}
    if not older:
        return translated
    structured = document.get("structured_outputs")
    if structured is not None:
        raise InvalidField(next(iter(older)), "it cannot be combined with 'structured_outputs': send one of the two")
    translated["structured_outputs"] = {OLDER[name]: value for name, value in older.items()}
    return translated
