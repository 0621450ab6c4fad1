"""Parses a file in Docker's `--env-file` format, so that a check reads the file that the container is started with.

Each line is `NAME=value`, and quotes are part of the value. `#` starts a comment only at the start of a line. A bare
`NAME` takes its value from the process; it is skipped if the process has none. (Docker's reference, `docker run`.)
"""

from __future__ import annotations

from collections.abc import Mapping

from handler.errors import SettingError


def parse(text: str, where: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the file. The last of two values wins, as with Docker.

    :param where: the file's name, for messages.
    :param environ: the environment in which a bare name is looked up.
    :raises SettingError: a line without a name, or a name with white space in it.
    """
    found: dict[str, str] = {}
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.rstrip("\r").lstrip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not name or any(character.isspace() for character in name):
            problem = "has no name before '='" if not name else "has white space in its name"
            raise SettingError(f"{where}, line {number}", problem, "Write NAME=value, without quotes or 'export'.")
        if equals:
            found[name] = value
        elif name in environ:
            found[name] = environ[name]
    return found
