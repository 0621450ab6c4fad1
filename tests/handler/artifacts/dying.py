"""A process that restores, and dies by SIGKILL at the n-th thing it does to the file system."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from handler.artifacts.restore.model_paths import ModelPaths
from handler.artifacts.restore.restore import RestoreOptions, restore
from handler.storage.transfer import download_pool
from handler.storage.transfer.directory_transfer import DirectorySource
from tests.handler.artifacts.restore_entry import Entry, small_parts

# What CPython reports of itself (`sys.audit`): every open, mkdir, rename, remove, truncate, rmdir, and so on.
EVENTS = ("open", "os.", "shutil.", "fcntl.")
PATHS = ModelPaths(model="/models/here")
OPTIONS = RestoreOptions(threads=3)


def restore_and_die(entry: Entry, target: Path, last: int, count: Callable[[int], None] | None = None) -> None:
    """Kills this process at event number `last`; with `count`, tells it at the end how many there are."""
    lock = threading.RLock()  # os.kill is an event as well
    events = 0

    def step() -> None:
        nonlocal events
        with lock:
            events += 1
            if events == last:
                os.kill(os.getpid(), signal.SIGKILL)

    def heard(event: str, arguments: tuple[object, ...]) -> None:
        if event.startswith(EVENTS):
            step()

    def pwrite(file: int, content: memoryview, position: int) -> int:
        """Not audited by CPython, so counted here; every other one falls short, as a full pipe of writes may."""
        step()
        return os.pwrite(file, content[: 1 + len(content) // 2], position)

    class Stepping:
        def __getattr__(self, name: str) -> object:
            return pwrite if name == "pwrite" else getattr(os, name)

    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch)
        patch.setattr(download_pool, "os", Stepping())
        sys.addaudithook(heard)
        restore([entry.manifest], DirectorySource(entry.in_directory), target, paths=PATHS, options=OPTIONS)
    if count is not None:
        count(events)


def restore_quietly(entry: Entry, target: Path, told: Callable[[int], None]) -> None:
    """Tells how many bytes it fetched."""
    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch)
        source = DirectorySource(entry.in_directory)
        told(restore([entry.manifest], source, target, paths=PATHS, options=OPTIONS).fetched)
