"""Which bodies were in an engine when it died, over the lives of all engines of this container. Texts are not kept.

A body that was there is suspected: it may have been the reason, or a bystander. It is tried alone before it runs beside
others again. Only an engine that dies of a body alone convicts it. Such a death, and the one before it, are the body's
and not the engine's.
"""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import msgspec

# A body is suspected for WINDOW seconds after a death, and refused for REFUSED seconds after one that convicts it.
WINDOW = 3600.0
BUDGET_SECONDS = 3600.0
REFUSED = 600.0
LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Presence:
    """A request that was in an engine when it died.

    :param digest: of its body.
    :param life: which engine: when its process was started. `life` and `at` are monotonic seconds.
    :param alone: the engine had nothing else, and nobody killed it.
    """

    digest: str
    request_id: str
    life: float
    at: float
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A body that is refused until `until`, and the requests that had it."""

    until: float
    request_ids: tuple[str, ...]


_PRESENCES = msgspec.json.Decoder(Presence)


class DeathLog:
    """A file in memory, which the master makes and all its processes share. It is lost with the container."""

    def __init__(self) -> None:
        self._file = os.memfd_create("engine-deaths")
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_RDWR | os.O_APPEND)

    def add(self, presence: Presence) -> None:
        if os.fstat(self._file).st_size < LARGEST:
            os.write(self._file, msgspec.json.encode(presence) + b"\n")

    def read(self) -> list[Presence]:
        return [_PRESENCES.decode(line) for line in os.pread(self._file, 2 * LARGEST, 0).splitlines()]

    def forget(self, before: float) -> None:
        """Removes what is older. Called by the master between two engines, when nobody else writes."""
        kept = [presence for presence in self.read() if presence.at >= before]
        os.ftruncate(self._file, 0)
        for presence in kept:
            self.add(presence)


def digest_of(body: bytes) -> str:
    return sha256(body).hexdigest()


def suspects(presences: Iterable[Presence], now: float) -> set[str]:
    """The digests of the bodies that are tried alone before they run beside others."""
    return {presence.digest for presence in presences if presence.at > now - WINDOW}


def refusals(presences: Iterable[Presence], now: float) -> dict[str, Refusal]:
    """The bodies that are refused, by digest."""
    return {
        digest: Refusal(until, tuple(dict.fromkeys(presence.request_id for presence in there)))
        for digest, there in _convicted(presences).items()
        if (until := max(presence.at for presence in there) + REFUSED) > now
    }


def explained(presences: Iterable[Presence]) -> set[float]:
    """The lives that convicted bodies have ended."""
    return {presence.life for there in _convicted(presences).values() for presence in there}


def failures(lives: Sequence[float], presences: Iterable[Presence], now: float) -> int:
    """How many engines ended within the last hour, without those that convicted bodies have ended.

    :param lives: when each engine was started, in order. The last one ends now.
    """
    known = explained(presences)
    ends = zip(lives, [*lives[1:], now], strict=False)  # before the first engine there are none
    return sum(end > now - BUDGET_SECONDS and life not in known for life, end in ends)


def _convicted(presences: Iterable[Presence]) -> dict[str, list[Presence]]:
    by_digest: defaultdict[str, list[Presence]] = defaultdict(list)
    for presence in presences:
        by_digest[presence.digest].append(presence)
    return {digest: there for digest, there in by_digest.items() if any(presence.alone for presence in there)}
