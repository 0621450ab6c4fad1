"""Parses the formats with a setting on each line: Docker's env files and Java's properties (`serving.properties`)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from handler.config.problems import BadValue
from handler.config.values import clean, shown
from handler.errors import SettingError

_PAIR = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_env_file(text: str, where: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a file in Docker's `--env-file` format. A check reads the file that the container starts with.

    Each line is `NAME=value`, and quotes are part of the value. `#` starts a comment only at the start of a line. A
    bare `NAME` takes its value from the process; it is skipped if the process has none (Docker's reference,
    `docker run`). The last of two values wins, as with Docker.

    :param where: the file's name, for messages.
    :param environ: the environment in which a bare name is looked up.
    :raises SettingError: a line without a name, or a name with white space in it.
    """
    variables: dict[str, str] = {}
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.rstrip("\r").lstrip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not name or any(character.isspace() for character in name):
            problem = "has no name before '='" if not name else "has white space in its name"
            raise SettingError(f"{where}, line {number}", problem, "Write NAME=value, without quotes or 'export'.")
        if equals:
            variables[name] = value
        elif name in environ:
            variables[name] = environ[name]
    return variables


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of Java's properties format, in order. Defined by java.util.Properties.load.

    :raises BadValue: a line without a key, a key with two different values, or invalid text.
    """
    properties: dict[str, str] = {}
    for line in _lines(text):
        match = _PAIR.fullmatch(line)
        key, value = (_unescape(part) for part in match.groups()) if match else (line, "")
        if not key:
            raise BadValue(f"the line {shown(line)} has no key", "Write key=value")
        if properties.get(key, value) != value:
            raise BadValue(f"the key {shown(key)} is given twice with two values", "Keep one of the two")
        properties[clean(key)] = clean(value.strip())
    return properties


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
    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped[1:], 16)) if len(escaped) == 5 else _PLAIN.get(escaped, escaped)

    return _ESCAPE.sub(plain, text)
