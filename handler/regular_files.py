"""Opens files of directories that others have filled: only regular files, never through a link that leads out.

Opening a FIFO or a device could block for ever, or have an effect. A link in a model's directory could lead to any file
that this process may read, such as /proc/self/environ, and a chat template's text comes back in replies.
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


class UnsafeFile(OSError):
    """The file must not be opened. `strerror` tells why."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(errno.EINVAL, problem, str(path))


def open_regular(path: Path, within: Path | None = None) -> BinaryIO:
    """Opens a regular file for reading. Never blocks.

    :param within: the directory that the file is of. The file may not be a link that leads out of it.
    :raises UnsafeFile: the file is a FIFO, a device or a socket, or such a link.
    :raises OSError: as `open`.
    """
    if within is not None and leads_out(path, within):
        raise UnsafeFile(path, "it is a link that leads out of the directory")
    if stat.S_ISDIR(mode := path.stat().st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory", str(path))
    if not stat.S_ISREG(mode):
        raise UnsafeFile(path, "it is not a regular file")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # replaced in between
        os.close(descriptor)
        raise UnsafeFile(path, "it is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, limit: int, within: Path | None = None) -> bytes:
    """The content of a regular file.

    :param limit: the most bytes that it may have.
    :raises OSError: as `open_regular`, or it is too large.
    """
    with open_regular(path, within) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", str(path))
    return content


def regular_files(directory: Path) -> Iterator[Path]:
    """All files of a directory and of those below it, in the order of their names.

    :raises UnsafeFile: one of them is no regular file, or a link that leads out, or there are too many.
    """
    entries = 0
    for place, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted([*directories, *names]):
            path = Path(place, name)
            if (entries := entries + 1) > MOST_ENTRIES:
                raise UnsafeFile(directory, f"it has more than {MOST_ENTRIES:,} files")
            if path.is_symlink() and leads_out(path, directory):
                raise UnsafeFile(path, "it is a link that leads out of the directory")
            if name in directories or not path.exists() or path.is_dir():
                continue
            if not path.is_file():
                raise UnsafeFile(path, "it is not a regular file")
            yield path


def leads_out(path: Path, directory: Path) -> bool:
    """Whether a file is outside of a directory once all links are followed.

    The files of a snapshot in the hub client's cache are links to its `blobs`.
    """
    within = [os.path.realpath(directory)]
    if directory.parent.name == "snapshots":
        within.append(os.path.realpath(directory.parent.parent / "blobs"))
    return not any(Path(os.path.realpath(path)).is_relative_to(place) for place in within)
