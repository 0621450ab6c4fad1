"""Parses Java's properties format, in which `serving.properties` is written. Defined by java.util.Properties.load."""

from __future__ import annotations

import re

from handler.config.problems import BadValue
from handler.config.values import clean, shown

_PAIR = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str) -> dict[str, str]:
    """The keys and values in order.

    :raises BadValue: a line without a key, a key with two different values, or invalid text.
    """
    found: dict[str, str] = {}
    for line in _lines(text):
        match = _PAIR.fullmatch(line)
        key, value = (_unescape(part) for part in match.groups()) if match else (line, "")
        if not key:
            raise BadValue(f"the line {shown(line)} has no key", "Write key=value")
        if found.get(key, value) != value:
            raise BadValue(f"the key {shown(key)} is given twice with two values", "Keep one of the two")
        found[clean(key)] = clean(value.strip())
    return found


def _lines(text: str) -> list[str]:
    """The logical lines, without comments and with continued lines joined."""
    lines: list[str] = []
    continued = ""
    for raw in text.split("\n"):
        line = raw.rstrip("\r").lstrip()
        if not continued and (not line or line[0] in "#!"):
            continue
        continued += line
        if (len(continued) - len(continued.rstrip("\\"))) % 2:
            continued = continued[:-1]
            continue
        lines.append(continued)
        continued = ""
    return [*lines, continued] if continued else lines


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped[1:], 16)) if len(escaped) == 5 else _PLAIN.get(escaped, escaped)

    return _ESCAPE.sub(one, text)
