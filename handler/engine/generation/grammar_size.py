"""Measures a grammar without compiling it: how often its repetitions multiply, and how deep a schema's text is."""

from __future__ import annotations

import re
from typing import Final

# An escaped character, a character class, a text of an EBNF, a bracket, a count of repetitions, or any character.
EXPRESSION: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*+\]|\{(\d*)(?:,(\d*))?\}|.", re.DOTALL)
EBNF: Final = re.compile(r'"(?:\\.|[^"\\])*+"|' + EXPRESSION.pattern, re.DOTALL)
BRACKET: Final = re.compile(r'"(?:\\.|[^"\\])*+"?|[\[\]{}]', re.DOTALL)
# Digits of a count that are read. A larger count is as wrong.
DIGITS: Final = 9


def nested_repetitions(text: str) -> int:
    """The largest product of counts within each other: 50 for `(a{5}b){2,10}`, and 1 for `a{5}`.

    :param text: a regular expression, or an EBNF.
    """
    found, outer = 1, list[tuple[int, int]]()
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
                found = max(found, item[0])
        elif token[0] not in "*+?":
            item = (1, 0)
    return found


def depth(text: str) -> int:
    """How deep the brackets of a JSON text are nested."""
    deepest = level = 0
    for token in BRACKET.finditer(text):
        level += 1 if token[0] in "[{" else -1 if token[0] in "]}" else 0
        deepest = max(deepest, level)
    return deepest
