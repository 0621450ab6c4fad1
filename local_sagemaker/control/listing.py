"""The List operations: filter, sort, page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

from local_sagemaker.control.control_errors import ValidationException
from local_sagemaker.control.registry import JsonDocument

DEFAULT_PAGE = 10


def page(
    documents: Iterable[JsonDocument],
    asked: JsonDocument,
    name: str,
    status: str | None = None,
    order: str = "Descending",
) -> tuple[list[JsonDocument], str | None]:
    """What one List call returns, and the token of the next.

    :param name: the member that holds a document's name; ``status`` likewise, where there is one.
    :raises ValidationException: the token is none of ours.
    """
    kept = [document for document in documents if _is_asked_for(document, asked, name, status)]
    key = {"Name": name, "Status": status}.get(asked.get("SortBy", ""), "CreationTime")
    kept.sort(key=lambda document: document[name])
    kept.sort(key=lambda document: document[key or name], reverse=asked.get("SortOrder", order) == "Descending")
    start = _start(asked.get("NextToken"))
    end = start + int(asked.get("MaxResults", DEFAULT_PAGE))
    return kept[start:end], _token(end) if end < len(kept) else None


def _is_asked_for(document: JsonDocument, asked: JsonDocument, name: str, status: str | None) -> bool:
    if (part := asked.get("NameContains")) and part.lower() not in document[name].lower():
        return False
    if status and (wanted := asked.get("StatusEquals")) and document[status] != wanted:
        return False
    for member in ("CreationTime", "LastModifiedTime"):
        at: Any = document.get(member)
        before, after = asked.get(f"{member}Before"), asked.get(f"{member}After")
        if at is not None and ((before is not None and at > before) or (after is not None and at < after)):
            return False
    return True


def _token(start: int) -> str:
    return base64.urlsafe_b64encode(f"from:{start}".encode()).decode()


def _start(token: str | None) -> int:
    if token is None:
        return 0
    try:
        kind, _, number = base64.urlsafe_b64decode(token.encode()).decode().partition(":")
        if kind == "from" and number.isdigit():
            return int(number)
    except (binascii.Error, UnicodeError):
        pass
    raise ValidationException("Invalid NextToken.")
