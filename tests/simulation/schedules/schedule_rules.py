"""What must hold of a simulated fleet at any time. A rule that is broken ends the simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.lease.acquisition import LEASES
from handler.artifacts.lease.compile_errors import SHORT
from handler.artifacts.lease.lease import read_record
from handler.artifacts.lease.negative_entries import CRASHES_COUNT, INSTANCES, SECONDS
from handler.artifacts.store import object_names
from tests.handler.artifacts.acquire_program import Compilation
from tests.simulation.fleet_bucket import TIMEOUT, Bucket
from tests.simulation.fleet_time import MOST_SKEW, Machine
from tests.simulation.schedules.schedule import Cause
from tests.simulation.schedules.schedule_compiler import artifacts

# An age is the difference of two machines' dates, and S3's time is the store's. Seconds.
SKEW = 2 * MOST_SKEW + 3 * TIMEOUT
REMEMBERED = {Cause.REJECTED: SECONDS, Cause.MEMORY: SHORT, Cause.SIGKILL: SHORT, Cause.SIGTERM: SHORT}
CRASHES = (Cause.CRASHED, Cause.SEGFAULT)
KILLS = (Cause.SIGKILL, Cause.SIGTERM)


class Violation(Exception):
    """A rule does not hold."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A compile that failed. `host`: the machine."""

    at: float
    key: str
    host: str
    cause: Cause


@dataclass(slots=True)
class Rules:
    """What was seen so far, and what follows from it.

    :param leases: when each process took its last lease.
    :param published: when each manifest was written.
    :param poisoned: when somebody wrote a record of a failed compile that never was.
    """

    bucket: Bucket
    signed: bool
    leases: dict[Machine, float] = field(default_factory=dict)
    compiling: dict[Machine, tuple[str, Callable[[], bool]]] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    failures: list[Failure] = field(default_factory=list)
    published: dict[str, float] = field(default_factory=dict)
    poisoned: float | None = None

    def compile_begins(self, process: Machine, compilation: Compilation) -> None:
        key = compilation.missing[0].digest
        if not compilation.held():
            return  # its machine stood still meanwhile; the result is for this machine only
        for other, (compiled, held) in self.compiling.items():
            if compiled == key and not other.dead and held():
                raise Violation(f"{process.name} compiles {key[:4]} while {other.name} does")
        for missing in compilation.missing:
            name = object_names.manifest_name(missing.kind, missing.digest)
            if self.published.get(name, math.inf) < self.leases[process]:
                raise Violation(f"{process.name} compiles {key[:4]}, which was published before")
        self.compiling[process] = key, compilation.held

    def compile_ends(self, process: Machine, compilation: Compilation, cause: Cause, compiler: str) -> None:
        self.compiling.pop(process, None)
        if cause is Cause.DONE:
            self.finished.add(compiler)
        else:
            self.failures.append(Failure(process.time.now, compilation.missing[0].digest, process.name, cause))

    def written(self, process: Machine, name: str, body: bytes) -> None:
        """An object was written."""
        if name.startswith(object_names.MANIFESTS):
            if self.bucket.written[name] > 1:
                raise Violation(f"{name} was written {self.bucket.written[name]} times")
            self.published[name] = process.time.now
        elif name.startswith(LEASES):
            record = read_record(body, 0)
            if record.renewals == 0:
                self.leases[process] = process.time.now

    def refused(self, host: str, key: str, now: float) -> None:
        """A start was refused because the compile failed before. There has to be a reason, by cause."""
        if self.poisoned is not None and not self.signed and now - self.poisoned < SECONDS + SKEW:
            return
        recent = [one for one in self.failures if one.key == key]
        for one in recent:
            if one.cause in (Cause.REJECTED, Cause.MEMORY) and now - one.at < REMEMBERED[one.cause] + SKEW:
                return
        broken = [one for one in recent if one.cause in CRASHES + KILLS and now - one.at < CRASHES_COUNT]
        everywhere = len({one.host for one in broken}) >= INSTANCES
        for one in broken:
            seconds = SECONDS if one.cause in CRASHES and everywhere else SHORT
            if (everywhere or one.host == host) and now - one.at < seconds + SKEW:
                return
        seen = [f"{one.cause.name} on {one.host} at {one.at:.0f}" for one in recent]
        raise Violation(f"{host} is refused {key[:4]} for no failure that counts: {seen}")

    def tried_again(self, host: str, key: str, began: float) -> None:
        """A start ended because its compile crashed or was killed: it has to have tried twice."""
        tries = [one for one in self.failures if (one.host, one.key) == (host, key) and one.at >= began]
        if len(tries) < 2:
            raise Violation(f"{host} gave up after one {tries[-1].cause.name}")

    def serves(self, host: str, keys: Sequence[ArtifactKey], directory: Path, compiler: str | None) -> None:
        """A machine serves these artifacts: those of one finished compile, whole.

        :param compiler: the compile, if it was this process's own.
        """
        found = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if path.is_file()}
        texts = {name: path.read_text() for name, path in found.items()}
        made = texts.get("model.pt", "").rpartition(" by ")[2]
        if texts != artifacts(keys, made) or made not in self.finished or compiler not in (None, made):
            raise Violation(f"{host} serves wrong artifacts: {texts}")
