"""The directory that a download writes to: its lock, its free space, and the boot of the machine that wrote it."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from handler.errors import SettingError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
POLL = 0.1  # seconds between two attempts to lock
BLOCK = 4096
RESERVE = 16 * 1024 * 1024  # for directories, and for other processes that write there
# Error numbers of a write that found no space: the disk, a quota, a limit on file sizes.
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class NoSpace(SettingError):
    """The disk has too little free space. Sizes in bytes.

    :param needed: the bytes still to write. 0 if they seemed to fit and the disk filled up in the meantime.
    :param reason: the message of the system in that case.
    """

    def __init__(self, setting: str, directory: Path, needed: int, free: int, reason: str = "") -> None:
        if reason:
            problem = f"{directory} filled up ({reason}; {free / 1e6:,.0f} MB free)"
        else:
            problem = f"the download needs {needed / 1e6:,.0f} MB more and {directory} has {free / 1e6:,.0f} MB free"
        super().__init__(setting, problem, "Give a directory on a larger volume, or a larger volume to the endpoint.")


class TargetRefused(SettingError):
    """The target directory may not or cannot be written."""

    def __init__(self, setting: str, target: Path, problem: str) -> None:
        super().__init__(setting, f"{target} {problem}", "Give a directory that this process may write and owns alone.")


def boot_id() -> str:
    """Returns an id that changes with each boot of the machine. Without one, no directory counts as of this boot."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return f"unknown, process {os.getpid()}"


def mark_written(directory: Path) -> None:
    """Notes beside a directory that it was written in this boot. Call before it appears under its name."""
    _mark(directory).write_text(boot_id())


def written_here(directory: Path) -> bool:
    """Whether the directory is there, and was written in this boot. Nothing is synced: a crash may lose data."""
    try:
        return directory.is_dir() and _mark(directory).read_text() == boot_id()
    except OSError:
        return False


def _mark(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.boot")


def free(directory: Path) -> int:
    """Returns the bytes that this process can still write there."""
    return shutil.disk_usage(directory).free


def used(directory: Path) -> int:
    """Returns the bytes that the files below a directory take on the disk."""
    total = 0
    for parent, _, names in os.walk(directory):
        total += sum(Path(parent, name).lstat().st_blocks * 512 for name in names)
    return total


def require_space(directory: Path, sizes: list[int], present: int, setting: str) -> None:
    """:raises NoSpace: files of these sizes, of which `present` bytes are on the disk already, do not fit."""
    rounded = sum(-(-size // BLOCK) * BLOCK for size in sizes)
    needed, room = max(0, rounded - present) + RESERVE, free(directory)
    if needed > room:
        raise NoSpace(setting, directory, needed, room)


@contextmanager
def full_disk_named(setting: str, directory: Path) -> Iterator[None]:
    """Write to the directory within it.

    :raises NoSpace: its disk filled up.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise NoSpace(setting, directory, 0, free(directory), error.strerror or "") from error


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[bool]:
    """Holds the lock of a directory, or of a file, which is created. Yields whether the path still is what was locked.

    If its last holder has renamed or removed it, two processes can hold two locks. So a file of locks stays.

    flock belongs to the open file. So it excludes threads as well as processes, and the kernel releases it when its
    holder ends. One download to a directory runs at a time on one machine.

    :param waiting: called every 0.1 s while another process holds the lock. An exception ends the wait.
    :raises OSError: the file cannot be created.
    """
    flags = os.O_DIRECTORY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waiting()
                time.sleep(POLL)
        yield _is(path, descriptor)
    finally:
        os.close(descriptor)


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
