"""Translates vLLM's older fields for structured output (`guided_json` ...) to `structured_outputs`.

vLLM 0.12 removed them, and ignores them silently since then (vllm/entrypoints/openai/protocol.py of 0.11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handler.errors import InvalidField

OLDER: Mapping[str, str] = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "guided_whitespace_pattern": "whitespace_pattern",
}


def translate(document: Mapping[str, Any]) -> dict[str, Any]:
    """The body with `structured_outputs` in place of the older fields.

    :raises InvalidField: the body has fields of both kinds.
    """
    older = {name: document[name] for name in OLDER if document.get(name) is not None}
    translated = {name: value for name, value in document.items() if name not in OLDER}
    if not older:
        return translated
    structured = document.get("structured_outputs")
    if structured is not None:
        raise InvalidField(next(iter(older)), "it cannot be combined with 'structured_outputs': send one of the two")
    translated["structured_outputs"] = {OLDER[name]: value for name, value in older.items()}
    return translated
