"""Filters, sorts and pages documents for the List operations."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

from local_sagemaker.control.control_errors import ValidationException
from local_sagemaker.control.registry import JsonDocument

DEFAULT_PAGE = 10


def page(
    documents: Iterable[JsonDocument], params: JsonDocument, name: str, status: str = ""
) -> tuple[list[JsonDocument], str | None]:
    """Returns one page of documents and the token of the next page.

    :param name: the member that has a document's name.
    :param status: the member that has its status, if there is one.
    :raises ValidationException: the token is invalid.
    """
    kept = [document for document in documents if _matches(document, params, name, status)]
    key = {"Name": name, "Status": status}.get(params.get("SortBy", ""), "CreationTime")
    kept.sort(key=lambda document: document[name])
    kept.sort(key=lambda document: document[key or name], reverse=params.get("SortOrder", "Descending") == "Descending")
    start = _start(params.get("NextToken"))
    end = start + int(params.get("MaxResults", DEFAULT_PAGE))
    return kept[start:end], _token(end) if end < len(kept) else None


def _matches(document: JsonDocument, params: JsonDocument, name: str, status: str) -> bool:
    if (part := params.get("NameContains")) and part.lower() not in document[name].lower():
        return False
    if status and (status_filter := params.get("StatusEquals")) and document[status] != status_filter:
        return False
    for member in ("CreationTime", "LastModifiedTime"):
        at: Any = document.get(member)
        before, after = params.get(f"{member}Before"), params.get(f"{member}After")
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
