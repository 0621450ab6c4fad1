"""Docker's `--env-file` format: what is checked is the file that the container will be started with.

`NAME=value` a line and nothing is unquoted; `#` starts a comment line, but no comment after a value; a bare `NAME`
takes its value from the process and is left out when the process has none. (Docker's reference, `docker run`.)
"""

from __future__ import annotations

from collections.abc import Mapping

from handler.errors import SettingError


def parse(text: str, where: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables, the last of two winning as with Docker.

    :param where: the file, for messages.
    :param environ: what a bare name is looked up in.
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
