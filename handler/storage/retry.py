"""How often and how long a request to AWS is tried: the one table for botocore's clients and for downloads."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from botocore.config import Config


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy. Times in seconds.

    :param attempts: how many requests are made for one object, or one part of it. The failure of the last one is final.
    :param base, cap: the delay after the n-th failure of a download is drawn from 0 to base * 2**(n-1), at most cap.
        This is "full jitter", which spreads the requests of a fleet that was throttled together (AWS Architecture Blog,
        "Exponential Backoff And Jitter"). botocore's `standard` mode has its own delays, with jitter as well.
    :param connect: the timeout for a connection.
    :param wait: the timeout for each reply.
    :param stall: a download's connection that does not fill one buffer in this time is closed, even if some bytes
        arrive.
    """

    attempts: int = 10
    base: float = 0.2
    cap: float = 10.0
    connect: float = 5.0
    wait: float = 20.0
    stall: float = 30.0

    def delay(self, failures: int, random: Random) -> float:
        """Returns the seconds to wait after this number of failures."""
        return random.uniform(0, min(self.cap, self.base * 2 ** (failures - 1)))

    def config(self, **options: object) -> Config:
        """Returns botocore's configuration for a client with this policy. It retries throttling, resets and 5xx.

        Not the `adaptive` mode: its rate limit holds for the whole client, so one 503 slows every part of a large
        upload.
        """
        from botocore.config import Config

        retries = {"mode": "standard", "total_max_attempts": self.attempts}
        return Config(retries=retries, connect_timeout=self.connect, read_timeout=self.wait, **options)  # type: ignore[arg-type]


# The parts of a model or of artifacts, over many connections.
DOWNLOADS: Final = Retry()
# The objects of a store, and listings. The reply to a large upload takes long.
OBJECTS: Final = Retry(attempts=8, wait=60.0)
# What is read or written as a whole: a lease is lost while a request of its renewal waits for a reply (60 s).
WHOLE_OBJECTS: Final = Retry(attempts=8, connect=3.0, wait=5.0)
# Settings and a checkpoint's headers: a few small files, for which a person may wait.
SMALL_FILES: Final = Retry(attempts=3, connect=3.0, wait=10.0)
# Calls of other services: SageMaker, KMS, Secrets Manager ...
SERVICES: Final = Retry(attempts=5, wait=60.0)
# S3 answers 409 when two conditional requests for one key overlap. The request may then be repeated.
CONDITIONAL_ATTEMPTS: Final = 4
# An object that is read as a whole. botocore retries a request, but not a body that is cut off.
BODY_ATTEMPTS: Final = 3
