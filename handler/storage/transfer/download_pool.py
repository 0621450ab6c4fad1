"""Downloads parts of files over several connections, and checks the digest of each part while it streams.

A `DownloadPool` starts, monitors and ends the threads. Each has a `DownloadWorker`, which takes a part from the shared
queue, downloads it, and takes the next.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from blake3 import blake3

from handler.storage.retry import Retry
from handler.storage.storage_errors import CredentialsRefused, DigestMismatch, RestoreTimedOut, StoreUnavailable
from handler.storage.transfer.transfer import FilePart, Interrupted, TransferSource
from handler.storage.transfer.transfer_progress import ProgressListener, Rate, TransferProgress

TICK = 0.2  # seconds between two checks of the workers
GRACE = 10.0  # seconds that a thread has to end. One that does not (a resolver, a dead disk) writes nothing any more
# Size of the buffer for one digest update and one write (measured: benchmarks/README.md).
BUFFER = 1024 * 1024
# Bytes of one read, which returns when it has them all. 64 connections that share 2 MB/s get them in 2 s each.
SLICE = 64 * 1024
# Replies that this machine's clock is wrong by more than 15 minutes. After so many, the server is believed.
SKEWED = 3


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
    :ivar stop: tells the workers to end.
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
        self.directory, self.source, self.retry, self.deadline = directory, source, retry, deadline
        self.written, self.stop = written, threading.Event()
        self._target = target
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self.workers = [DownloadWorker(self) for _ in range(max(1, threads))]
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
                if time.monotonic() > self.deadline:
                    raise RestoreTimedOut(self._target, self._progress(total, rate).done, total, "fetching")
                self._abort_stalled(self.retry.stall)
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
            self.stop.set()
        finally:
            with self._lock:
                self._running -= 1
                if not self._running or self._failure is not None:
                    self._ended.set()

    def _end(self, threads: list[threading.Thread]) -> None:
        if self._running:
            self.stop.set()
        until = time.monotonic() + GRACE
        while (alive := [thread for thread in threads if thread.is_alive()]) and time.monotonic() < until:
            if self.stop.is_set():
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


class DownloadWorker:
    """One download thread. Its counters are written by this thread only and can be read by any.

    :ivar done: bytes written, including those of the current part. It decreases if the part has to be repeated.
    :ivar fetched: bytes received, also those that had to be received again.
    :ivar kept: bytes that an earlier restore had written correctly.
    :ivar retries: how often a part was requested again.
    :ivar moved: monotonic seconds of the last progress while it waits for the source. None while it does not wait.
    """

    def __init__(self, pool: DownloadPool) -> None:
        self._pool, self._stop = pool, pool.stop
        self.reader = pool.source.reader()
        self._random = Random()
        self._buffer = memoryview(bytearray(BUFFER))
        self.done = self.fetched = self.kept = self.retries = 0
        self.moved: float | None = None

    def work(self, parts: deque[FilePart], *, resume: bool) -> None:
        """Downloads parts until there are none left, or `stop` is set.

        :param parts: shared with the other workers.
        :param resume: keep parts that an earlier restore wrote correctly.
        :raises ArtifactError: a part cannot be downloaded, or had a wrong digest twice.
        :raises OSError: a part cannot be written.
        """
        try:
            while not self._stop.is_set():
                try:
                    part = parts.popleft()
                except IndexError:
                    return
                if resume and self._is_there(part):
                    self.kept += part.length
                    self.done += part.length
                else:
                    self._download(part)
                if not self._stop.is_set():  # otherwise the part may be incomplete
                    self._pool.written(part)
        finally:
            self.moved = None
            self.reader.close()

    def _download(self, part: FilePart) -> None:
        failures = skewed = 0
        wrong = False
        while not self._stop.is_set():
            before = self.done
            try:
                digest = self._fetch(part)
            except Interrupted as error:
                self.moved, self.done = None, before
                self.reader.close()
                if self._stop.is_set():
                    return
                failures += 1
                skewed += error.clock is not None
                if skewed == SKEWED:
                    raise CredentialsRefused(self._pool.source.uri(part.file), _skew(error)) from None
                if failures == self._pool.retry.attempts:
                    reason = f"{error.reason}; the last of {failures} attempts"
                    raise StoreUnavailable(self._pool.source.uri(part.file), reason) from None
                self.retries += 1
                self._stop.wait(self._pool.retry.delay(failures, self._random))
                continue
            if part.digest is None or digest == part.digest:
                return
            self.done = before
            if wrong:
                raise DigestMismatch(f"{self._pool.source.uri(part.file)} ({part.file.path!r})", part.digest, digest)
            wrong = True
            self.retries += 1
            self.reader.close()

    def _fetch(self, part: FilePart) -> str:
        """Writes the part and returns the digest of the received bytes. On `stop` it raises Interrupted."""
        self.moved = now = time.monotonic()
        timeout = max(0.001, min(self._pool.retry.wait, self._pool.deadline - now))
        self.reader.open(part.file, part.offset, part.length, timeout)
        digest = blake3()
        position, end = part.offset, part.offset + part.length
        file = self._open(part, os.O_WRONLY | os.O_CREAT)
        try:
            # The file gets its full size first: writes that extend a file cost more (measured).
            if os.fstat(file).st_size < part.file.size:
                os.ftruncate(file, part.file.size)
            while position < end:
                count = self._received(end - position)
                if not count:
                    raise Interrupted(f"the body ended after {position - part.offset} of {part.length} bytes")
                self.moved = None
                if self._stop.is_set():
                    raise Interrupted("the restore was ended")
                received = self._buffer[:count]
                if part.digest is not None:
                    digest.update(received)
                _write(file, received, position)
                position += count
                self.done += count
                self.fetched += count
                self.moved = time.monotonic()
        finally:
            os.close(file)
        self.moved = None
        return digest.hexdigest()

    def _received(self, most: int) -> int:
        """Fills the buffer, and returns how many bytes it has. A slow connection shows progress long before that."""
        count, most = 0, min(most, len(self._buffer))
        while count < most and not self._stop.is_set():
            received = self.reader.readinto(self._buffer[count : min(count + SLICE, most)])
            if not received:
                break
            count += received
            self.moved = time.monotonic()
        return count

    def _is_there(self, part: FilePart) -> bool:
        if part.digest is None:
            return False
        try:
            file = self._open(part, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            digest = blake3()
            position, end = part.offset, part.offset + part.length
            while position < end and not self._stop.is_set():
                count = os.preadv(file, [self._buffer[: end - position]], position)
                if not count:
                    return False
                digest.update(self._buffer[:count])
                position += count
            return digest.hexdigest() == part.digest
        finally:
            os.close(file)

    def _open(self, part: FilePart, flags: int) -> int:
        return os.open(self._pool.directory / part.file.path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


def _write(file: int, content: memoryview, position: int) -> None:
    while content:
        count = os.pwrite(file, content, position)
        content = content[count:]
        position += count


def _skew(error: Interrupted) -> str:
    assert error.clock is not None
    direction = "ahead of" if error.clock > 0 else "behind"
    return f"{error.reason}: this machine's clock is {abs(error.clock):.0f} s {direction} the server's"
