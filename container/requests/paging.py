"""Lists that are asked for a page at a time: `limit` and `next_page_token`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from flask import Request

from handler.errors import InvalidField

Item = TypeVar("Item")
LIMIT = 100


def page(request: Request, items: Sequence[Item]) -> tuple[list[Item], str | None]:
    """The items asked for, and the token of the next ones, if there are any.

    :raises InvalidField: a limit or a token that is no number.
    """
    limit = _number(request, "limit", LIMIT, 1)
    start = _number(request, "next_page_token", 0, 0)
    end = start + limit
    return list(items[start:end]), str(end) if end < len(items) else None


def _number(request: Request, name: str, default: int, least: int) -> int:
    text = request.args.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < least:
        raise InvalidField(name, f"it must be a whole number of {least} or more")
    return int(text)
