"""What JSON can hold, as a type, and how a value of an unknown type is read."""

from __future__ import annotations

import json

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def mapping(value: object) -> dict[str, Json]:
    """The object itself; an empty one if the value is something else."""
    return value if isinstance(value, dict) else {}


def whole_number(value: object) -> int | None:
    """The number itself; None if the value is something else. A boolean is no number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def whole_numbers(value: object) -> list[int]:
    """The whole numbers of a list; empty for anything else."""
    numbers = [whole_number(item) for item in value] if isinstance(value, list | tuple) else []
    return [number for number in numbers if number is not None]


def json_object(text: str | bytes) -> dict[str, Json] | None:
    """The object of a JSON document; None if it is broken, nested too deeply or something else."""
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
