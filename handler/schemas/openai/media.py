"""Media that a request refers to: nothing is fetched, or read from disk, unless the endpoint's settings allow it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from handler.errors import InvalidField, UnsupportedField

# Content parts that carry a URL (vllm/entrypoints/chat_utils.py), as a string or as {"url": ...}.
URL_KEYS = ("image_url", "video_url", "audio_url", "file_url")
TEXT_TYPES = ("text", "input_text", "output_text", "refusal", "thinking")
FIX = "send it inline as a data: URL"


def check(document: Mapping[str, Any], allowed_domains: Collection[str], *, multimodal: bool) -> None:
    """
    :param allowed_domains: hosts that media may come from (`allowed_media_domains`).
    :param multimodal: the model takes media at all.
    :raises UnsupportedField: it does not.
    :raises InvalidField: a URL of another kind, or of another host.
    """
    if not multimodal:
        for where, part in _parts(document):
            if part.get("type", "text") not in TEXT_TYPES:
                raise UnsupportedField(where, "this model takes text only")
    for where, url in _urls(document):
        scheme = url.partition(":")[0].strip().lower()
        if scheme == "data":
            continue
        if scheme not in ("http", "https"):
            raise InvalidField(where, f"it must be a data: URL, or http(s) from a host that is allowed: {FIX}")
        if not allowed_domains:
            raise InvalidField(
                where, f"this endpoint fetches nothing: {FIX}, or name the host in SM_VLLM_ALLOWED_MEDIA_DOMAINS"
            )
        try:
            host = urlsplit(url).hostname
        except ValueError:
            host = None
        if host not in allowed_domains:
            raise InvalidField(where, f"its host is none of those allowed ({', '.join(sorted(allowed_domains))})")


def _urls(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for where, part in _parts(document):
        for name in URL_KEYS:
            given = part.get(name)
            url = given.get("url") if isinstance(given, dict) else given
            if isinstance(url, str):
                yield f"{where}.{name}", url


def _parts(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key in ("messages", "input"):
        messages = document.get(key)
        for index, message in enumerate(messages if isinstance(messages, list) else ()):
            content = message.get("content") if isinstance(message, dict) else None
            for number, part in enumerate(content if isinstance(content, list) else ()):
                if isinstance(part, dict):
                    yield f"{key}[{index}].content[{number}]", part
