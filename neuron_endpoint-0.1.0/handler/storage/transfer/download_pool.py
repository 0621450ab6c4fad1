"""Starts, monitors and ends the download threads of a restore."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from handler.storage.storage_errors import RestoreTimedOut
from handler.storage.transfer.download_worker import DownloadWorker, Retry
from handler.storage.transfer.file_parts import FilePart
from handler.storage.transfer.transfer import TransferSource
from handler.storage.transfer.transfer_progress import ProgressListener, Rate, TransferProgress

TICK = 0.2  # seconds between two checks of the workers
GRACE = 10.0  # seconds that a thread has to end. One that does not (a resolver, a dead disk) writes nothing any more


def threads_here() -> int:
    """Returns the number of connections for this machine: four for each CPU, from 8 to 64.

    On two CPUs and a server on loopback, 4, 8 and 16 are equally fast (measured). S3 delivers 85 to 90 MB/s per
    connection ("Performance design patterns for Amazon S3"), so a large instance needs many.
    """
    return min(64, max(8, 4 * len(os.sched_getaffinity(0))))


class DownloadPool:
    """Downloads parts of files into a directory.

    :param directory: where the files are written.
    :param target: the final name of the directory, for error messages.
    :param threads: the number of concurrent connections.
    :param deadline: monotonic seconds.
    :param written: called with each part that is written, in the thread that wrote it.
    """

    def __init__(
        self,
        directory: Path,
        target: Path,
        source: TransferSource,
        retry: Retry,
        threads: int,
        deadline: float = math.inf,
        written: Callable[[FilePart], None] = lambda part: None,
    ) -> None:
        self._target, self._retry, self._deadline = target, retry, deadline
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self.workers = [
            DownloadWorker(directory, source, retry, deadline, self._stop, Random(), written)
            for _ in range(max(1, threads))
        ]
        self._running = len(self.workers)

    def download(self, parts: Iterable[FilePart], total: int, progress: ProgressListener, *, resume: bool) -> None:
        """Returns when every part is written and its digest checked.

        :raises RestoreTimedOut: the deadline passed first.
        :raises ArtifactError, OSError: the first error of any worker.
        """
        left = deque(parts)
        threads = [
            threading.Thread(target=self._run, args=(worker, left, resume), name="restore", daemon=True)
            for worker in self.workers
        ]
        for thread in threads:
            thread.start()
        rate = Rate()
        try:
            while not self._ended.wait(TICK):
                progress(self._progress(total, rate))
                if time.monotonic() > self._deadline:
                    raise RestoreTimedOut(self._target, self._progress(total, rate).done, total, "fetching")
                self._abort_stalled(self._retry.stall)
        finally:
            self._end(threads)
        if self._failure is not None:
            raise self._failure
        progress(self._progress(total, rate))

    def _run(self, worker: DownloadWorker, parts: deque[FilePart], resume: bool) -> None:
        try:
            worker.work(parts, resume=resume)
        except BaseException as error:
            with self._lock:
                self._failure = self._failure or error
            self._stop.set()
        finally:
            with self._lock:
                self._running -= 1
                if not self._running or self._failure is not None:
                    self._ended.set()

    def _end(self, threads: list[threading.Thread]) -> None:
        if self._running:
            self._stop.set()
        until = time.monotonic() + GRACE
        while (alive := [thread for thread in threads if thread.is_alive()]) and time.monotonic() < until:
            if self._stop.is_set():
                self._abort_stalled(0)
            alive[0].join(TICK / 4)

    def _abort_stalled(self, patience: float) -> None:
        """Aborts the readers that received nothing for longer than `patience` seconds."""
        now = time.monotonic()
        for worker in self.workers:
            moved = worker.moved
            if moved is not None and now - moved > patience:
                worker.reader.abort()

    def _progress(self, total: int, rate: Rate) -> TransferProgress:
        fetched = sum(worker.fetched for worker in self.workers)
        return TransferProgress(sum(worker.done for worker in self.workers), total, rate.of(fetched))
