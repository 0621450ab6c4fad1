"""A bucket in memory with S3's conditional writes, shared by simulated machines: a test tool, for virtual time only."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol, TypeVar

from handler.storage.object_store import SMALL, Location, ObjectInfo
from handler.storage.storage_errors import ArtifactError, Conflict, NotFound, StoreUnavailable, TooLarge
from handler.storage.transfer.transfer import Interrupted, TransferFile
from tests.simulation.fleet_time import EPOCH, Machine

T = TypeVar("T")


# A client that gets no reply gives up after this time, and the request may still be carried out. Seconds.
TIMEOUT = 60.0


class Fault(Enum):
    """What goes wrong with a request.

    DAMAGED: a read has a wrong byte. TORN: an upload leaves half an object where there was none. S3 never does that
    ("Amazon S3 data consistency model": a write is whole or not there), and no store replaces a whole object by half.
    """

    NONE = "none"
    REFUSED = "an error, and nothing was done"
    LOST = "the reply is lost"
    LATE = "no reply, and it is carried out after the client has given up"
    SLOW = "slow"
    DAMAGED = "damaged"
    TORN = "torn"


class Faults(Protocol):
    """Decides what goes wrong with a machine's next request."""

    def next(self, machine: Machine, verb: str) -> Fault: ...


@dataclass(frozen=True, slots=True)
class FaultRate:
    """The part of requests that are answered by an error: half of them were carried out all the same."""

    rate: float = 0.0

    def next(self, machine: Machine, verb: str) -> Fault:
        luck = machine.random.random()
        if luck >= self.rate:
            return Fault.NONE
        return Fault.REFUSED if luck < self.rate / 2 else Fault.LOST


class Fate(Protocol):
    """Is told of each step of each machine, and may kill or freeze it there."""

    def before(self, machine: Machine, step: str) -> None: ...

    def after(self, machine: Machine, step: str, *, done: bool = True) -> None: ...


@dataclass(slots=True)
class Bucket:
    """What is stored, and what was asked of it.

    :param requests: of each second of virtual time, by kind of object: `get leases`.
    :param written: how often each object was written.
    :param on_write: is told of each write: the machine, the object and its content.
    """

    objects: dict[str, tuple[bytes, ObjectInfo]] = field(default_factory=dict)
    requests: defaultdict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    written: Counter[str] = field(default_factory=Counter)
    on_write: Callable[[Machine, str, bytes], None] = lambda machine, key, body: None


class BucketOf:
    """The bucket as one machine reaches it: an `ObjectStore`.

    :param latency: mean seconds of a request, there and back.
    """

    def __init__(self, bucket: Bucket, machine: Machine, fate: Fate, faults: Faults, latency: float = 0.03) -> None:
        self._bucket, self._machine, self._fate = bucket, machine, fate
        self._latency, self._faults = latency, faults

    @property
    def uri(self) -> str:
        return "s3://simulated"

    def location(self, key: str) -> Location:
        return Location(f"{self.uri}/{key}", bucket="simulated", key=key)

    def get(self, key: str, *, limit: int = SMALL) -> tuple[bytes, str]:
        body, info = self._request("get", key, lambda: self._found(key))
        if len(body) > limit:
            raise TooLarge(self.location(key).uri, len(body), limit)
        return body, info.etag

    def put(self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        def write() -> str:
            there = self._bucket.objects.get(key)
            refused = (if_absent and there) or (if_match is not None and (not there or there[1].etag != if_match))
            if refused and not (there and there[0] == body):
                raise Conflict(self.location(key).uri)
            return self.store(key, body) if not refused or there is None else there[1].etag

        return self._request("put", key, write)

    def upload(self, key: str, path: Path) -> None:
        body = path.read_bytes()

        def store(body: bytes = body) -> str:
            return self.store(key, body)

        def torn() -> None:
            if key not in self._bucket.objects:
                store(body[: len(body) // 2])

        self._request("upload", key, store, torn=torn)

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        end = None if length is None else start + length
        yield self._request("read", key, lambda: self._found(key)[0][start:end], damaged=_damaged)

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        def delete() -> None:
            there = self._bucket.objects.get(key)
            if if_match is not None and (there is None or there[1].etag != if_match):
                raise Conflict(self.location(key).uri)
            self._bucket.objects.pop(key, None)

        self._request("delete", key, delete)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        objects = self._bucket.objects
        found = self._request("list", prefix, lambda: [objects[key][1] for key in objects if key.startswith(prefix)])
        yield from sorted(found, key=lambda info: info.key)

    def head(self, key: str) -> ObjectInfo:
        return self._request("head", key, lambda: self._found(key)[1])

    def _found(self, key: str) -> tuple[bytes, ObjectInfo]:
        if key not in self._bucket.objects:
            raise NotFound(self.location(key).uri)
        return self._bucket.objects[key]

    def store(self, key: str, body: bytes) -> str:
        """Writes an object at once, without a request."""
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()  # as S3 does: equal bodies have equal etags
        self._bucket.objects[key] = body, ObjectInfo(key, len(body), EPOCH + int(self._machine.time.now), etag)
        self._bucket.written[key] += 1
        self._bucket.on_write(self._machine, key, body)
        return etag

    def _request(
        self,
        verb: str,
        key: str,
        act: Callable[[], T],
        torn: Callable[[], object] | None = None,
        damaged: Callable[[T], T] | None = None,
    ) -> T:
        """One request: the way there or back takes time, of an error as well; the act is atomic."""
        machine = self._machine
        step = f"{verb} {key.partition('/')[0]}"
        fault = self._faults.next(machine, verb)
        travel, there = machine.random.expovariate(1 / self._latency), machine.random.random() < 0.5
        if fault is Fault.SLOW:
            travel += machine.random.uniform(0, TIMEOUT)
        if there:
            machine.sleep(travel)
        try:
            return self._carried_out(step, key, fault, act, torn, damaged)
        finally:
            if not there:
                machine.sleep(travel)

    def _carried_out(
        self,
        step: str,
        key: str,
        fault: Fault,
        act: Callable[[], T],
        torn: Callable[[], object] | None,
        damaged: Callable[[T], T] | None,
    ) -> T:
        machine, time = self._machine, self._machine.time
        machine.check()
        self._fate.before(machine, step)
        self._bucket.requests[int(time.now)][step] += 1
        if fault is Fault.LATE:
            late = time.now + TIMEOUT * machine.random.uniform(0, 3)
            time.spawn(Machine(time, "network", 0), lambda: _ignored(act), late)
            machine.sleep(TIMEOUT)
        elif fault is Fault.TORN and torn is not None:
            torn()
        if fault in (Fault.REFUSED, Fault.LATE, Fault.TORN):
            raise StoreUnavailable(self.location(key).uri, f"simulated: {fault.value}")
        try:
            answer = act()
        except ArtifactError:
            self._fate.after(machine, step, done=False)
            raise
        self._fate.after(machine, step)
        if fault is Fault.LOST:
            raise StoreUnavailable(self.location(key).uri, f"simulated: {fault.value}")
        return damaged(answer) if fault is Fault.DAMAGED and damaged is not None else answer


class BucketSource:
    """The bucket as a restore reads it: a `Source`, and its own only `Reader`'s maker."""

    def __init__(self, objects: BucketOf, name: Callable[[str], str]) -> None:
        self._objects, self._name = objects, name

    def reader(self) -> BucketReader:
        return BucketReader(self._objects, self._name)

    def uri(self, file: TransferFile) -> str:
        return self._objects.location(self._name(file.digest)).uri


class BucketReader:
    """See `Reader`."""

    def __init__(self, objects: BucketOf, name: Callable[[str], str]) -> None:
        self._objects, self._name = objects, name
        self._rest = b""

    def open(self, file: TransferFile, offset: int, length: int, timeout: float) -> None:
        try:
            self._rest = b"".join(self._objects.read(self._name(file.digest), offset, length))
        except StoreUnavailable as error:
            raise Interrupted(error.problem) from None

    def readinto(self, buffer: memoryview) -> int:
        taken = self._rest[: len(buffer)]
        buffer[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        return len(taken)

    def abort(self) -> None:
        self._rest = b""

    def close(self) -> None:
        self._rest = b""


def _damaged(body: bytes) -> bytes:
    return body[:-1] + bytes((body[-1] ^ 1,)) if body else body


def _ignored(act: Callable[[], object]) -> None:
    """For an act whose reply nobody reads."""
    try:
        act()
    except ArtifactError:
        pass
