"""Checks relative paths from manifests, archives and object keys: no file may be written outside of its directory."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from handler.storage.storage_errors import UnsafePath

# Limits of the file system (Linux NAME_MAX, PATH_MAX), in bytes.
LONGEST_NAME = 255
LONGEST_PATH = 1024
# Directories that are nested in each other. An archive of some MB could make millions of them.
DEEPEST = 64


def confined(path: str) -> str:
    """Returns the path if it is relative, `/`-separated, and has no `.`, `..`, empty part, `\\` or control character.

    :raises UnsafePath: the path is unsafe.
    """
    if not path or path.startswith("/"):
        raise UnsafePath(path, "is absolute" if path else "is empty")
    if len(path) > 1 and path[1] == ":":
        raise UnsafePath(path, "begins with a drive letter")
    if "\\" in path or any(ord(letter) < 32 or ord(letter) == 127 for letter in path):
        raise UnsafePath(path, "contains a backslash or a control character")
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise UnsafePath(path, "is not valid Unicode") from None
    if len(encoded) > LONGEST_PATH:
        raise UnsafePath(path, f"is longer than {LONGEST_PATH} bytes")
    if path.count("/") > DEEPEST:
        raise UnsafePath(path, f"is nested more than {DEEPEST} deep")
    for part in path.split("/"):
        if part in {"", ".", ".."}:
            raise UnsafePath(path, f"has the part '{part}'")
        if len(part.encode()) > LONGEST_NAME:
            raise UnsafePath(path, f"has a part longer than {LONGEST_NAME} bytes")
    return path


def confined_all(paths: Iterable[str]) -> None:
    """Checks the paths of one directory: each is safe, none appears twice, none is both a file and a directory.

    Names that differ only by case are rejected as well: a case-insensitive file system would overwrite one of them.

    :raises UnsafePath: an unsafe path.
    """
    folded = sorted((confined(path).casefold().replace("/", "\0"), path) for path in paths)
    for (name, path), (next_name, next_path) in pairwise(folded):  # a directory's paths follow a file of its name
        if next_name == name:
            twice = path == next_path
            raise UnsafePath(next_path, "appears twice" if twice else f"differs from {path!r} only by case")
        if next_name.startswith(f"{name}\0"):
            raise UnsafePath(next_path, f"is below the file {path!r}")
    # Two spellings of one directory name are allowed: the files in both are checked together.
