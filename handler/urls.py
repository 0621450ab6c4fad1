"""Splits the text of a URL that a user or a client wrote."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def url_parts(text: str) -> SplitResult:
    """Its parts. A text that is no URL (`http://[`), on which Python's parser raises, has none."""
    try:
        return urlsplit(text)
    except ValueError:
        return SplitResult("", "", "", "", "")
