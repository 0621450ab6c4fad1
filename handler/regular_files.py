"""Opens files of directories that others have filled: regular files only, and never through a link that leads out.

A FIFO or a device could block for ever. A link could lead to whatever this process may read, such as
/proc/self/environ, and the text of a chat template comes back in replies.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

# Entries of one directory and all below it. The largest repositories of models have some thousand.
MOST_ENTRIES: Final = 100_000


def exists(place: Path) -> bool:
    """Whether there is something. Nothing is at a name that is too long, or where this process may not look."""
    try:
        return place.exists()
    except OSError:
        return False


def open_regular(path: Path, within: Path | None = None, *, limit: int | None = None) -> BinaryIO:
    """Opens a regular file for reading. Never blocks.

    :param within: the directory that the file must be in, once links are followed.
    :param limit: the most bytes that it may have.
    :raises OSError: as `open`; or it is no regular file, leads out, or is too large. `strerror` tells which.
    """
    if within is not None and leads_out(path, within):
        raise _unsafe(path, "it is a link that leads out of the directory")
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise _unsafe(path, "it is not a regular file")
    if limit is not None and found.st_size > limit:
        raise _unsafe(path, f"it has more than {limit:,} bytes")
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def regular_files(directory: Path) -> Iterator[Path]:
    """All files of a directory and of those below it.

    :raises OSError: as `open_regular`, or there are too many.
    """
    entries = 0
    for place, directories, names in os.walk(directory):
        for path in (Path(place, name) for name in sorted([*directories, *names])):
            if (entries := entries + 1) > MOST_ENTRIES:
                raise _unsafe(directory, f"it has more than {MOST_ENTRIES:,} files")
            if path.is_symlink() and (path.is_dir() or leads_out(path, directory)):
                raise _unsafe(path, "it is a link that leads out of the directory, or to a directory")
            if path.is_file():
                yield path
            elif path.exists() and not path.is_dir():
                raise _unsafe(path, "it is not a regular file")


def leads_out(path: Path, directory: Path) -> bool:
    """Whether a file is outside of a directory once links are followed. The hub's cache keeps files in `blobs`."""
    within = [directory, directory.parent.parent / "blobs"] if directory.parent.name == "snapshots" else [directory]
    try:
        return not any(Path(os.path.realpath(path)).is_relative_to(os.path.realpath(place)) for place in within)
    except ValueError:  # no file has such a name: a lone surrogate, a null
        return False


def _unsafe(path: Path, problem: str) -> OSError:
    return OSError(errno.EINVAL, problem, str(path))
