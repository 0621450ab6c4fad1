"""What the views share: JSON bodies and replies, and the query parameters of lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
from flask import Response, request

from container.requests.request_body import require_json
from handler.errors import InvalidField, MissingField
from handler.schemas.json_body import decode
from handler.schemas.openai.sampling_fields import convert
from handler.schemas.reply import encode

Fields = TypeVar("Fields", bound=msgspec.Struct)
Item = TypeVar("Item")
LIMIT = 100


def reply(document: object, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(document), content_type="application/json", headers=headers)


def body_fields(kind: type[Fields]) -> Fields:
    """The fields of the request's body.

    :raises UnsupportedMediaType, InvalidBody: it is not one JSON object.
    :raises ClientError: a field is unknown, or has a wrong type.
    """
    require_json(request)
    return convert(decode(request.get_data()), kind)


def required(field: str, value: str | None) -> str:
    if not value:
        raise MissingField(field, "send a string")
    return value


def page(items: Sequence[Item]) -> tuple[list[Item], dict[str, str]]:
    """The page that the query's `limit` and `next_page_token` ask for, and the reply's field of the next page, if any.

    :raises InvalidField: a limit or a token that is not a number.
    """
    limit = number("limit", LIMIT, 1)
    start = number("next_page_token", 0, 0)
    end = start + limit
    return list(items[start:end]), {"nextPageToken": str(end)} if end < len(items) else {}


def number(name: str, default: int, minimum: int) -> int:
    """A number in the query.

    :raises InvalidField: it is not one, or too small.
    """
    text = request.args.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < minimum:
        raise InvalidField(name, f"it must be a whole number of {minimum} or more")
    return int(text)
