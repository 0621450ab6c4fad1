"""A program for `unshare`: restores onto a file system of its own, of so many bytes, and prints how that ended.

Arguments: an empty directory for the file system, the directory of the objects, its size, and "full", "filling" or
"read-only".
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handler.artifacts.restore.restore import restore
from handler.errors import SettingError
from handler.storage.transfer import download_directory
from handler.storage.transfer.directory_transfer import DirectorySource
from tests.handler.artifacts.restore_entry import make_entry, small_parts


@contextmanager
def full_disk(largest: int = 10_000) -> Iterator[None]:
    """Within it, no file of this process may be larger, which fails as on a full disk, where nothing can be mounted."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


if __name__ == "__main__":
    disk, objects, size, state = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(disk)]
    subprocess.run(mounted, check=True)
    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch)
        entry = make_entry(objects)
        if state == "filling":  # there was room when it was asked for
            patch.setattr(download_directory, "free", lambda directory: 1 << 40)
        if state == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        try:
            restore([entry.manifest], DirectorySource(entry.in_directory), disk / "artifacts")
        except SettingError as error:
            print(type(error).__name__, error.message)
        print("finished" if (disk / "artifacts").exists() else "nothing there")
