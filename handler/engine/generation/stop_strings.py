"""Joins the stop strings of a request's fields, and rejects an empty one.

handler/schemas/body_limits.py limits their number and their length.
"""

from __future__ import annotations

from collections.abc import Sequence

from handler.errors import InvalidField


def stop_strings(field: str, *values: str | Sequence[str] | None) -> tuple[str, ...]:
    """The stop strings of one or more fields, each of which is a text, a list of texts, or absent.

    :param field: the name in the error.
    :raises InvalidField: one is empty. Every text would end with it.
    """
    texts = tuple(text for value in values for text in ((value,) if isinstance(value, str) else value or ()))
    if "" in texts:
        raise InvalidField(field, "a stop string is empty")
    return texts
