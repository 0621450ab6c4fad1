"""Paging of lists: the query parameters `limit` and `next_page_token`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from flask import Request

from handler.errors import InvalidField

Item = TypeVar("Item")
LIMIT = 100


def page(request: Request, items: Sequence[Item]) -> tuple[list[Item], str | None]:
    """The requested page, and the token of the next page, if there is one.

    :raises InvalidField: a limit or a token that is not a number.
    """
    limit = number(request, "limit", LIMIT, 1)
    start = number(request, "next_page_token", 0, 0)
    end = start + limit
    return list(items[start:end]), str(end) if end < len(items) else None


def number(request: Request, name: str, default: int, minimum: int) -> int:
    """A number in the query.

    :raises InvalidField: it is not one, or too small.
    """
    text = request.args.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < minimum:
        raise InvalidField(name, f"it must be a whole number of {minimum} or more")
    return int(text)
