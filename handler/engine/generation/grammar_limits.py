"""How large a grammar may be, and that it is one: reading one holds the interpreter, and with it all streams and /ping.

Measured with xgrammar 0.1.29 (what vLLM 0.16 reads them with): a regular expression of 4 KB takes up to 0.14 s, of
16 KB 2.6 s, of 64 KB 79 s; a JSON schema of 64 KB 0.2 s, of 256 KB 1.9 s; an EBNF of 240 KB 136 s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from handler.errors import InvalidField

# Characters: of a regular expression, an EBNF or any text in a schema (which may be a pattern).
TEXT: Final = 4096
# Of all of it, as JSON.
WHOLE: Final = 64 * 1024


def check(given: object, field: str) -> None:
    """:raises InvalidField: a grammar that would take too long to read, or end the process that reads it."""
    if given is None:
        return
    if any("\0" in text for text in _texts(given)):
        # xgrammar 0.1.29 ends with a segmentation fault at the regular expression "\0" (found by the fuzz).
        raise InvalidField(field, "a text in it has the character U+0000, which no grammar can hold")
    if any(len(text) > TEXT for text in _texts(given)):
        raise InvalidField(field, f"a text in it is longer than {TEXT} characters, which takes too long to read")
    if len(json.dumps(given)) > WHOLE:
        raise InvalidField(field, f"it is longer than {WHOLE} characters as JSON, which takes too long to read")


def check_document(document: Mapping[str, Any]) -> None:
    """All that becomes a grammar in a body of OpenAI's API.

    :raises InvalidField: as `check`; or a schema that says nothing but "as this schema says", which vLLM 0.16 answers
        with an empty text and 0.24 with an internal error.
    """
    for field in ("structured_outputs", "response_format", "text"):
        given = document.get(field)
        check(given, field)
        if _is_endless(_schema_of(given)):
            raise InvalidField(field, "its schema refers to itself and to nothing else")
    choice = document.get("tool_choice")
    if choice == "required" or isinstance(choice, dict):
        tools = document.get("tools")
        for index, tool in enumerate(tools if isinstance(tools, list) else ()):
            about = tool.get("function", tool) if isinstance(tool, dict) else None
            check(about.get("parameters") if isinstance(about, dict) else None, f"tools[{index}]")
        if isinstance(tools, list) and len(json.dumps(tools)) > WHOLE:
            raise InvalidField("tools", f"of tools that must be called there may be {WHOLE} characters as JSON")


def _schema_of(given: object) -> object:
    """The schema in `structured_outputs` or `response_format`, if there is one."""
    if not isinstance(given, dict):
        return None
    about = given.get("json_schema")
    return about.get("schema") if isinstance(about, dict) else given.get("json")


def _is_endless(schema: object) -> bool:
    """Its references lead in a circle before anything is said."""
    seen: set[str] = set()
    node = schema
    while isinstance(node, dict) and isinstance(to := node.get("$ref"), str) and to.startswith("#"):
        if to in seen:
            return True
        seen.add(to)
        node = schema
        for key in to.removeprefix("#").split("/")[1:]:
            node = node.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    return False


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
