"""Checks the free disk space before a restore."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from handler.artifacts.restore.restore_errors import NoSpace

BLOCK = 4096
RESERVE = 16 * 1024 * 1024  # for directories, and for other processes that write there
# Error numbers of a write that found no space: the disk, a quota, a limit on file sizes.
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def free(directory: Path) -> int:
    """Returns the bytes that this process can still write there."""
    return shutil.disk_usage(directory).free


def used(directory: Path) -> int:
    """Returns the bytes that the files below a directory take on the disk."""
    total = 0
    for parent, _, names in os.walk(directory):
        total += sum(Path(parent, name).lstat().st_blocks * 512 for name in names)
    return total


def require(directory: Path, sizes: list[int], present: int, setting: str) -> None:
    """Checks that files of these sizes fit. `present` bytes of them are on the disk already.

    :raises NoSpace: they do not fit.
    """
    rounded = sum(-(-size // BLOCK) * BLOCK for size in sizes)
    needed, room = max(0, rounded - present) + RESERVE, free(directory)
    if needed > room:
        raise NoSpace(setting, directory, needed, room)
