"""Limits the size of a grammar, because a large one blocks the Python interpreter, with all streams and /ping.

Measured with xgrammar 0.1.29, which vLLM 0.16 uses. A regular expression of 4 KB takes up to 0.14 s to parse, one of
16 KB 2.6 s, one of 64 KB 79 s. A JSON schema of 64 KB takes 0.2 s, one of 256 KB 1.9 s. An EBNF of 240 KB takes 136 s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from handler.errors import InvalidField

# The most characters of a regular expression, of an EBNF, or of any string in a schema, which may be a pattern.
TEXT: Final = 4096
# The most characters of the whole grammar, as JSON.
WHOLE: Final = 64 * 1024
# The largest product of counts within each other, as in `(a{1,1000}){1,1000}`, which takes more than 10 s to compile.
REPETITIONS: Final = 100_000
# The most levels of a schema. As part of a body it has fewer (handler/schemas/json_body.py); it may also be a text.
LEVELS: Final = 64
# An escaped character, a character class, a text of an EBNF, a bracket, a count of repetitions, or any character.
EXPRESSION: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*+\]|\{(\d*)(?:,(\d*))?\}|.", re.DOTALL)
EBNF: Final = re.compile(r'"(?:\\.|[^"\\])*+"|' + EXPRESSION.pattern, re.DOTALL)
BRACKET: Final = re.compile(r'"(?:\\.|[^"\\])*+"?|[\[\]{}]', re.DOTALL)
# Digits of a count that are read. A larger count is as wrong.
DIGITS: Final = 9


def check(grammar: object, field: str) -> None:
    """:raises InvalidField: the grammar would take too long to parse, or would crash the process that parses it."""
    if grammar is None:
        return
    if any("\0" in text for text in _texts(grammar)):
        # xgrammar 0.1.29 ends with a segmentation fault at the regular expression "\0" (found by the fuzz).
        raise InvalidField(field, "a string in it has the character U+0000, which a grammar cannot contain")
    for text in _texts(grammar):
        if len(text) > TEXT:
            raise InvalidField(field, f"a string in it is longer than {TEXT} characters, which takes too long to parse")
        if _nested_repetitions(text) > REPETITIONS:
            raise InvalidField(field, f"its counts of repetitions multiply to more than {REPETITIONS:,}")
        if text.lstrip().startswith(("{", "[")):
            check_depth(text, field)
    if len(json.dumps(grammar)) > WHOLE:
        raise InvalidField(field, f"it is longer than {WHOLE} characters as JSON, which takes too long to parse")


def check_depth(text: str, field: str) -> None:
    """:raises InvalidField: a JSON text is nested too deep."""
    if _depth(text) > LEVELS:
        raise InvalidField(field, f"it is nested more than {LEVELS} levels deep")


def check_document(document: Mapping[str, Any]) -> None:
    """Checks every field of an OpenAI body that becomes a grammar.

    :raises InvalidField: as `check`. Also for a schema that only refers to itself, which vLLM 0.16 answers with an
        empty text and 0.24 with an internal error.
    """
    grammars = {field: document.get(field) for field in ("structured_outputs", "response_format", "text")}
    if isinstance(text := grammars["text"], dict):
        grammars["text"] = text.get("format")
    for field, value in grammars.items():
        check(value, field)
        if _is_endless(_schema_of(value)):
            raise InvalidField(field, "its schema refers to itself and defines nothing")
    if document.get("ignore_eos") and any(map(_is_grammar, grammars.values())):
        # vLLM 0.16 goes on without the grammar where the grammar has ended.
        raise InvalidField("ignore_eos", "a grammar decides where its text ends: leave it out")
    choice, tools = document.get("tool_choice"), document.get("tools")
    tools = [_function(tool) for tool in (tools if isinstance(tools, list) else ())]
    # vLLM 0.24 and later make a grammar of strict tools also where the model may choose.
    if choice == "required" or isinstance(choice, dict) or any(tool.get("strict") for tool in tools):
        for index, tool in enumerate(tools):
            check(tool.get("parameters"), f"tools[{index}]")
        if len(json.dumps(tools)) > WHOLE:
            problem = f"where they are a grammar, all tools together may have at most {WHOLE} characters as JSON"
            raise InvalidField("tools", problem)


def _function(tool: object) -> Mapping[str, Any]:
    """A tool's name, parameters and strictness. A body of the responses' API has them in the tool itself."""
    about = tool.get("function", tool) if isinstance(tool, dict) else None
    return about if isinstance(about, dict) else {}


def _is_grammar(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and value.get("type") != "text"


def _schema_of(value: object) -> object:
    """The JSON schema in `structured_outputs`, `response_format` or `text.format`, if there is one."""
    if not isinstance(value, dict):
        return None
    about = value.get("json_schema", value)
    return about.get("schema", value.get("json")) if isinstance(about, dict) else value.get("json")


def _is_endless(schema: object) -> bool:
    """Whether the references of a schema form a circle that defines nothing."""
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


def _nested_repetitions(text: str) -> int:
    """The largest product of counts within each other: 50 for `(a{5}b){2,10}`, and 1 for `a{5}`.

    :param text: a regular expression, or an EBNF.
    """
    deepest, outer = 1, list[tuple[int, int]]()
    # The product and the depth of counts: of the current group, and of its last item.
    group = item = (1, 0)
    for token in (EBNF if "::=" in text else EXPRESSION).finditer(text):
        count = token[2] or token[1]
        if token[0] == "(":
            outer.append(group)
            group = item = (1, 0)
        elif token[0] == ")":
            item = group
            group = max(outer.pop(), item) if outer else (1, 0)
        elif count:
            item = (item[0] * int(count[:DIGITS]), item[1] + 1)
            group = max(group, item)
            if item[1] > 1:
                deepest = max(deepest, item[0])
        elif token[0] not in "*+?":
            item = (1, 0)
    return deepest


def _depth(text: str) -> int:
    """How deep the brackets of a JSON text are nested."""
    deepest = level = 0
    for token in BRACKET.finditer(text):
        level += 1 if token[0] in "[{" else -1 if token[0] in "]}" else 0
        deepest = max(deepest, level)
    return deepest
