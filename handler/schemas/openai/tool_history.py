"""The arguments of the tool calls in a conversation's history, of which chat templates need an object.

vLLM reads them as JSON, and hands whatever that is to the template (0.13.0 to 0.32.0, entrypoints/chat_utils.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from handler.errors import InvalidField


def fill_arguments(document: Mapping[str, Any]) -> None:
    """Makes each call's arguments the text of a JSON object. null, "null" and "" are no arguments.

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
    for name in ("messages", "input"):
        items = document.get(name)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            calls = item.get("tool_calls") if isinstance(item, dict) else None
            for number, call in enumerate(calls if isinstance(calls, list) else ()):
                if isinstance(call, dict) and isinstance(call.get("function"), dict):
                    yield f"{name}[{index}].tool_calls[{number}].function", call["function"]
            if isinstance(item, dict) and item.get("type") == "function_call":
                yield f"{name}[{index}]", item
