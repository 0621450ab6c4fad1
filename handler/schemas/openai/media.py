"""Checks the media URLs of a request. Nothing is fetched or read from disk unless the endpoint's settings allow it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from handler.errors import InvalidField, UnsupportedField
from handler.schemas.openai.document_limits import items_with_parts
from handler.urls import url_parts

# Content parts that carry a URL (vllm/entrypoints/chat_utils.py), as a string or as {"url": ...}.
URL_KEYS = ("image_url", "video_url", "audio_url", "file_url")
TEXT_TYPES = ("text", "input_text", "output_text", "refusal", "thinking", "reasoning_text")
PART_LISTS = ("content", "output")  # of a message or a document to pool, and of a tool's result in a response
FIX = "send it inline as a data: URL"


def check(document: Mapping[str, Any], allowed_domains: Collection[str], *, multimodal: bool) -> None:
    """Checks the media in a body.

    :param allowed_domains: the hosts from which media may be fetched (`allowed_media_domains`).
    :param multimodal: whether the model accepts media.
    :raises UnsupportedField: the model accepts text only.
    :raises InvalidField: a URL is of an unsupported kind, or its host is not allowed.
    """
    if not multimodal:
        for where, part in _parts(document):
            if part.get("type", "text") not in TEXT_TYPES:
                raise UnsupportedField(where, "this model accepts text only")
    for where, url in _urls(document):
        scheme = url.partition(":")[0].strip().lower()
        if scheme == "data":
            continue
        if scheme not in ("http", "https"):
            raise InvalidField(where, f"it must be a data: URL, or an http(s) URL of an allowed host: {FIX}")
        if not allowed_domains:
            raise InvalidField(
                where, f"this endpoint fetches no media: {FIX}, or allow the host with SM_VLLM_ALLOWED_MEDIA_DOMAINS"
            )
        if url_parts(url).hostname not in allowed_domains:
            raise InvalidField(where, f"its host is not allowed. Allowed are {', '.join(sorted(allowed_domains))}")


def _urls(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for where, part in _parts(document):
        for name in URL_KEYS:
            value = part.get(name)
            url = value.get("url") if isinstance(value, dict) else value
            if isinstance(url, str):
                yield f"{where}.{name}", url


def _parts(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for where, item in items_with_parts(document):
        for name in PART_LISTS:
            parts = item.get(name)
            for number, part in enumerate(parts if isinstance(parts, list) else ()):
                if isinstance(part, dict):
                    yield f"{where}.{name}[{number}]", part
