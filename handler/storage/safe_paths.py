"""Relative paths that stay where they are put: what manifests, archives and keys of others name is checked here."""

from __future__ import annotations

from collections.abc import Iterable

from handler.storage.storage_errors import UnsafePath

# Limits of the file systems that a path ends up on (Linux NAME_MAX, PATH_MAX), in bytes.
LONGEST_NAME = 255
LONGEST_PATH = 1024


def confined(path: str) -> str:
    """The path, when it is plain: relative, `/`-separated, without `.`, `..`, empty parts, `\\` or control characters.

    :raises UnsafePath: it is not.
    """
    if not path or path.startswith("/"):
        raise UnsafePath(path, "is absolute" if path else "is empty")
    if len(path) > 1 and path[1] == ":":
        raise UnsafePath(path, "begins with a drive letter")
    if "\\" in path or any(ord(letter) < 32 or ord(letter) == 127 for letter in path):
        raise UnsafePath(path, "holds a backslash or a control character")
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise UnsafePath(path, "is not valid Unicode") from None
    if len(encoded) > LONGEST_PATH:
        raise UnsafePath(path, f"is longer than {LONGEST_PATH} bytes")
    for part in path.split("/"):
        if part in {"", ".", ".."}:
            raise UnsafePath(path, f"has the part '{part}'")
        if len(part.encode()) > LONGEST_NAME:
            raise UnsafePath(path, f"has a part longer than {LONGEST_NAME} bytes")
    return path


def confined_all(paths: Iterable[str]) -> None:
    """Checks paths that are to lie in one directory: each confined, none twice, none both a file and a directory.

    Names that differ only by case clash as well: on a file system that ignores it one would overwrite the other.

    :raises UnsafePath: the first that does not fit.
    """
    files: dict[str, str] = {}
    directories: dict[str, str] = {}
    for path in paths:
        confined(path)
        folded = path.casefold()
        if folded in files:
            twice = files[folded] == path
            raise UnsafePath(path, "is there twice" if twice else f"differs from {files[folded]!r} only by case")
        if folded in directories:
            raise UnsafePath(path, f"is a file and, in {directories[folded]!r}, a directory")
        files[folded] = path
        parent = folded
        while "/" in parent:
            parent = parent.rpartition("/")[0]
            if parent in files:
                raise UnsafePath(path, f"is below the file {files[parent]!r}")
            if parent in directories:
                break
            directories[parent] = path
    # Two spellings of one directory would be one on such a file system; the files in them are checked above.
