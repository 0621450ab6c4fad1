"""Options and result of an `Acquisition`, and the types of its callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.lease import lease
from handler.artifacts.store.manifest import Manifest
from handler.json_value import Json


class OnMiss(StrEnum):
    """What to do on a miss: compile (or wait for the instance that does), fail, or only wait until another publishes.

    `WAIT` is for instances that can serve a model but are too small to compile it.
    """

    COMPILE = "compile"
    FAIL = "fail"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Compilation:
    """The task for a compiler.

    :param directory: an empty directory, to be filled with the artifacts as the engine loads them.
    :param missing: the keys that have no entry.
    :param held: tells whether this instance still holds the lease. If not, the result is for this instance only.
    """

    directory: Path
    missing: tuple[ArtifactKey, ...]
    held: Callable[[], bool]


# Fills `directory`. Raises CompileFailed for a failure that would happen again. Other errors are not remembered.
Compile = Callable[[Compilation], None]
# Restores entries to a directory: `restore.restore` with its source, paths and progress.
Restore = Callable[[Sequence[Manifest], Path], object]
EventListener = Callable[[Mapping[str, Json]], None]


def ignore_event(event: Mapping[str, Json]) -> None:
    """An `EventListener` that does nothing."""


@dataclass(frozen=True, slots=True)
class AcquisitionOptions:
    """Times in seconds.

    :param lease: how long a lease lasts without renewal. If a holder dies, the others wait this long.
    :param poll: the mean interval between two polls of a waiting instance. Each interval is drawn from 0.5 to 1.5 times
        the mean, so that a fleet that started together does not poll together. 1,000 instances send 100 requests a
        second.
    :param machine: the machine that compiles (instance type, host name), for manifests, leases and messages.
    :param setting: the setting that `on_miss` is from, for error messages.
    """

    on_miss: OnMiss = OnMiss.COMPILE
    lease: float = lease.SECONDS
    poll: float = 10.0
    machine: Mapping[str, str] = field(default_factory=dict)
    setting: str = "ENDPOINT_ON_MISS"

    @property
    def machine_name(self) -> str:
        return " ".join(self.machine.values())


@dataclass(frozen=True, slots=True)
class Acquired:
    """Artifacts on this machine.

    :param path: the directory for the engine: the target after a restore, a directory beside it after a compile.
    :param published: whether the store has exactly these artifacts. After a compile it is False if the lease was lost
        in the meantime or the store failed.
    """

    path: Path
    compiled: bool
    published: bool
