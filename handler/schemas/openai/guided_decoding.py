"""vLLM's older names for structured output, `guided_json` and its kin, as `structured_outputs`: 0.12 dropped them, and
since then they are ignored in silence (vllm/entrypoints/openai/protocol.py of 0.11)."""

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
    """The body with `structured_outputs` alone.

    :raises InvalidField: both names for one thing.
    """
    given = {name: document[name] for name in OLDER if document.get(name) is not None}
    translated = {name: value for name, value in document.items() if name not in OLDER}
    if not given:
        return translated
    structured = document.get("structured_outputs")
    if structured is not None:
        raise InvalidField(next(iter(given)), "'structured_outputs' says the same: send one of the two")
    translated["structured_outputs"] = {OLDER[name]: value for name, value in given.items()}
    return translated
