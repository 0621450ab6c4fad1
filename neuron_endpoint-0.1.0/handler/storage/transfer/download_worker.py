"""One download thread of a restore: takes a part, downloads it, checks its digest, and takes the next."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from blake3 import blake3

from handler.storage.storage_errors import CredentialsRefused, DigestMismatch, StoreUnavailable
from handler.storage.transfer.file_parts import FilePart
from handler.storage.transfer.transfer import Interrupted, TransferSource

# Size of the buffer for one read, one digest update and one write (measured: benchmarks/README.md).
BUFFER = 1024 * 1024
# Replies that this machine's clock is wrong by more than 15 minutes. After so many, the server is believed.
SKEWED = 3


@dataclass(frozen=True, slots=True)
class Retry:
    """The retry policy of a transfer. Times in seconds.

    :param attempts: how many requests are made for one part. The failure of the last one is final.
    :param base, cap: the delay after the n-th failure is drawn from 0 to base * 2**(n-1), at most cap. This is "full
        jitter", which spreads the requests of a fleet that was throttled together (AWS Architecture Blog,
        "Exponential Backoff And Jitter").
    :param wait: the timeout for each reply.
    :param stall: a connection that does not fill one buffer in this time is closed, even if some bytes arrive.
    """

    attempts: int = 10
    base: float = 0.2
    cap: float = 10.0
    wait: float = 20.0
    stall: float = 30.0

    def delay(self, failures: int, random: Random) -> float:
        """Returns the seconds to wait after this number of failures."""
        return random.uniform(0, min(self.cap, self.base * 2 ** (failures - 1)))


class DownloadWorker:
    """One download thread. Its counters are written by this thread only and can be read by any.

    :ivar done: bytes written, including those of the current part. It decreases if the part has to be repeated.
    :ivar fetched: bytes received, also those that had to be received again.
    :ivar kept: bytes that an earlier restore had written correctly.
    :ivar retries: how often a part was requested again.
    :ivar moved: monotonic seconds of the last progress while it waits for the source. None while it does not wait.
    """

    def __init__(
        self,
        directory: Path,
        source: TransferSource,
        retry: Retry,
        deadline: float,
        stop: threading.Event,
        random: Random,
        written: Callable[[FilePart], None] = lambda part: None,
    ) -> None:
        self._directory = directory
        self._source, self.reader = source, source.reader()
        self._retry, self._deadline, self._stop, self._random = retry, deadline, stop, random
        self._written = written
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
                    self._written(part)
        finally:
            self.moved = None
            self.reader.close()

    def _download(self, part: FilePart) -> None:
        failures = skewed = 0
        wrong = False
        while not self._stop.is_set():
            before = self.done
            try:
                found = self._fetch(part)
            except Interrupted as error:
                self.moved, self.done = None, before
                self.reader.close()
                if self._stop.is_set():
                    return
                failures += 1
                skewed += error.clock is not None
                if skewed == SKEWED:
                    raise CredentialsRefused(self._source.uri(part.file), _skew(error)) from None
                if failures == self._retry.attempts:
                    reason = f"{error.reason}; the last of {failures} attempts"
                    raise StoreUnavailable(self._source.uri(part.file), reason) from None
                self.retries += 1
                self._stop.wait(self._retry.delay(failures, self._random))
                continue
            if part.digest is None or found == part.digest:
                return
            self.done = before
            if wrong:
                raise DigestMismatch(f"{self._source.uri(part.file)} ({part.file.path!r})", part.digest, found)
            wrong = True
            self.retries += 1
            self.reader.close()

    def _fetch(self, part: FilePart) -> str:
        """Writes the part and returns the digest of the received bytes. On `stop` it raises Interrupted."""
        self.moved = now = time.monotonic()
        timeout = max(0.001, min(self._retry.wait, self._deadline - now))
        self.reader.open(part.file, part.offset, part.length, timeout)
        digest = blake3()
        position, end = part.offset, part.offset + part.length
        file = self._open(part, os.O_WRONLY | os.O_CREAT)
        try:
            # The file gets its full size first: writes that extend a file cost more (measured).
            if os.fstat(file).st_size < part.file.size:
                os.ftruncate(file, part.file.size)
            while position < end:
                count = self.reader.readinto(self._buffer[: end - position])
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
        return os.open(self._directory / part.file.path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


def _write(file: int, content: memoryview, position: int) -> None:
    while content:
        count = os.pwrite(file, content, position)
        content = content[count:]
        position += count


def _skew(error: Interrupted) -> str:
    assert error.clock is not None
    direction = "ahead of" if error.clock > 0 else "behind"
    return f"{error.reason}: this machine's clock is {abs(error.clock):.0f} s {direction} the server's"
