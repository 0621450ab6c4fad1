"""A process that fetches a model from S3 beside a restore of artifacts, as a start does, and dies on the way."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import boto3  # noqa: F401 - imported once, in the process that forks these
import pytest

from handler.artifacts.restore.restore import RestoreOptions, restore
from handler.startup.lifecycle import Lifecycle
from handler.startup.start_steps import StartSteps, Step
from handler.storage import s3_download
from handler.storage.transfer.directory_transfer import DirectorySource
from tests.handler.artifacts.restore_entry import Entry, small_parts

# What CPython reports of itself (`sys.audit`): every open, mkdir, rename, remove, truncate, and so on.
EVENTS = ("open", "os.", "shutil.")
PART = 16 * 1024  # bytes, so that small files have several parts


def start(
    environment: dict[str, str],
    uri: str,
    entry: Entry,
    scratch: Path,
    counted: str,
    last: int,
    told: Callable[[tuple[int, int]], None] | None = None,
) -> None:
    """Kills this process at the `last` event of those in files whose path begins with `counted`.

    :param told: gets, at the end, the bytes of the model that were there before, and the number of events.
    """
    os.environ.update(environment)
    lock = threading.RLock()  # os.kill is an event as well
    events = 0
    kept: list[int] = []

    def heard(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal events
        if event.startswith(EVENTS) and str(arguments[0]).startswith(counted):
            with lock:
                events += 1
                if events == last:
                    os.kill(os.getpid(), signal.SIGKILL)

    def fetch() -> None:
        s3_download.download_prefix(uri, scratch / "model", "ENDPOINT_MODEL", lambda done, total: kept.append(done))

    def restored() -> None:
        source = DirectorySource(entry.in_directory)
        restore([entry.manifest], source, scratch / "artifacts", options=RestoreOptions(threads=3))

    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch)
        patch.setattr(s3_download, "PART", PART)
        steps = StartSteps(Lifecycle())
        sys.addaudithook(heard)
        steps.begin([Step("fetch model", fetch), Step("restore artifacts", restored)])
        for name in ("fetch model", "restore artifacts"):
            steps.result(name)
    if told is not None:
        told((kept[0] if kept else 0, events))
