"""Reads JSON bodies, and checks what a request says about its body."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from werkzeug.wrappers import Request

from handler.errors import InvalidBody, UnsupportedMediaType
from handler.schemas.json_body import decode


def json_document(request: Request) -> dict[str, Any]:
    """The document in a request's body.

    :raises UnsupportedMediaType, InvalidBody: it is not one JSON object.
    """
    require_json(request)
    return decode(request.get_data())


def require_json(request: Request, media_type: str | None = None, *, accepted: Collection[str] = ()) -> None:
    """Checks that a body is declared as JSON in UTF-8. A missing Content-Type is an error as well.

    :param media_type: the body's, if the request need not declare it.
    :param accepted: media types that are accepted besides JSON's.
    :raises UnsupportedMediaType, InvalidBody: it is not.
    """
    media_type = request.mimetype if media_type is None else media_type
    if media_type != "application/json" and not media_type.endswith("+json") and media_type not in accepted:
        raise UnsupportedMediaType(request.headers.get("Content-Type", ""))
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if charset not in {"utf-8", "utf8", "us-ascii"}:
        raise InvalidBody(f"its charset is '{charset[:40]}'")
