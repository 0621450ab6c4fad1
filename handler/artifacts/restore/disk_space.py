"""Whether what is to be written will fit, asked before it is fetched."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from handler.artifacts.restore.restore_errors import NoSpace

BLOCK = 4096
RESERVE = 16 * 1024 * 1024  # for directories, and for whoever else writes there
# What a write says when there is no room: the disk, a quota, a limit on file sizes.
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def free(directory: Path) -> int:
    """Bytes that this process may still write there."""
    return shutil.disk_usage(directory).free


def used(directory: Path) -> int:
    """Bytes that the files below a directory take on the disk."""
    total = 0
    for parent, _, names in os.walk(directory):
        total += sum(Path(parent, name).lstat().st_blocks * 512 for name in names)
    return total


def require(directory: Path, sizes: list[int], present: int, setting: str) -> None:
    """Checks that files of these sizes fit, of which `present` bytes are there already.

    :raises NoSpace: they do not.
    """
    rounded = sum(-(-size // BLOCK) * BLOCK for size in sizes)
    needed, room = max(0, rounded - present) + RESERVE, free(directory)
    if needed > room:
        raise NoSpace(setting, directory, needed, room)
