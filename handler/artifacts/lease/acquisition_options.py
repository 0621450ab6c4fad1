"""What a search for artifacts is told, and what it gives back."""

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
    """What to do about a miss: compile (or wait for whoever does), fail, or only ever wait for another to publish.

    The last is for instances that serve a model but are too small to compile it.
    """

    COMPILE = "compile"
    FAIL = "fail"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Compilation:
    """What a compiler is asked for.

    :param directory: empty; to be filled with the artifacts as the engine loads them.
    :param missing: the keys that have no entry.
    :param deadline: monotonic seconds (`Timing.now`) by which it should have given up.
    :param held: whether the lease is still ours; when not, the result serves this instance alone.
    """

    directory: Path
    missing: tuple[ArtifactKey, ...]
    deadline: float
    held: Callable[[], bool]


# Fills `directory`. Raises CompileFailed for what would fail again; any other error is not remembered.
Compile = Callable[[Compilation], None]
# Brings entries to a directory: `restore.restore` with its source, paths and progress.
Restore = Callable[[Sequence[Manifest], Path], object]
EventListener = Callable[[Mapping[str, Json]], None]


def unheard(event: Mapping[str, Json]) -> None:
    """For those who do not listen."""


@dataclass(frozen=True, slots=True)
class AcquisitionOptions:
    """Times in seconds.

    :param lease: how long a lease lasts that is not renewed: what a holder's death costs the others.
    :param poll: the mean between two polls of a waiter; each is drawn from a half to one and a half of it, so that a
        fleet that began together does not ask together. 1,000 instances make 100 requests a second of it.
    :param machine: what compiles here (instance type, host name): for manifests, leases and messages.
    :param setting: the setting that `on_miss` is from, for errors.
    """

    on_miss: OnMiss = OnMiss.COMPILE
    lease: float = lease.SECONDS
    poll: float = 10.0
    machine: Mapping[str, str] = field(default_factory=dict)
    setting: str = "ENDPOINT_ON_MISS"


@dataclass(frozen=True, slots=True)
class Acquired:
    """Artifacts on this machine.

    :param path: what the engine loads: the target when restored, a directory beside it when compiled here.
    :param published: whether the store has these very artifacts: of what was compiled here not when the lease was lost
        meanwhile, or the store failed.
    """

    path: Path
    compiled: bool
    published: bool
    manifests: tuple[Manifest, ...] = ()
