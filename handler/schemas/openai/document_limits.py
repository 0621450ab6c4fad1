"""How much a body of the full path may hold, before vLLM's models look at it, whatever its fields mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from handler.errors import InvalidField

MAX_REQUEST_ID: Final = 128
# Messages, parts of one, tools.
MAX_ITEMS: Final = 4096


def check_items(document: Mapping[str, Any], talk: str) -> None:
    """vLLM looks at these item by item, while nobody else has the interpreter: at 4,096 for up to 0.5 s.

    :param talk: the field with the conversation.
    :raises InvalidField: more than `MAX_ITEMS` messages, parts of one, or tools.
    """
    messages = document.get(talk)
    lists = [(talk, messages), ("tools", document.get("tools"))]
    for index, item in enumerate(messages[:MAX_ITEMS] if isinstance(messages, list) else ()):
        if isinstance(item, dict):
            lists.append((f"{talk}[{index}].content", item.get("content")))
    for field, items in lists:
        if isinstance(items, list) and len(items) > MAX_ITEMS:
            raise InvalidField(field, f"it has {len(items):,} items; one request may have {MAX_ITEMS:,}")


def characters(value: object) -> int:
    """Of all the texts in it."""
    if isinstance(value, str):
        return len(value)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(characters, items))


def check_integers(value: object, where: str = "") -> None:
    """Past 64 bits an integer cannot reach vLLM's core.

    :raises InvalidField: naming its place.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            check_integers(item, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for item in value:
            check_integers(item, where)
    elif type(value) is int and not -(2**63) <= value < 2**63:
        raise InvalidField(where[:MAX_REQUEST_ID], "it is larger than 64 bits")


def check_request_id(given: object) -> None:
    """:raises InvalidField: it is no short line of printable ASCII."""
    if given is None:
        return
    if not isinstance(given, str) or not given.isascii() or not given.isprintable() or len(given) > MAX_REQUEST_ID:
        raise InvalidField("request_id", f"it must be up to {MAX_REQUEST_ID} printable ASCII characters")
