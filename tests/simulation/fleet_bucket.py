"""A bucket in memory with S3's conditional writes, shared by simulated machines: a test tool, for virtual time only."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from handler.artifacts.store.manifest import FileEntry
from handler.storage.object_store import SMALL, Location, ObjectInfo
from handler.storage.storage_errors import ArtifactError, Conflict, NotFound, StoreUnavailable, TooLarge
from tests.simulation.fleet_time import EPOCH, Machine

T = TypeVar("T")


class Fate(Protocol):
    """Is told of each step of each machine, and may kill or freeze it there."""

    def before(self, machine: Machine, step: str) -> None: ...

    def after(self, machine: Machine, step: str, *, done: bool = True) -> None: ...


@dataclass(slots=True)
class Bucket:
    """What is stored, and what was asked of it.

    :param requests: of each second of virtual time, by kind of object: `get leases`.
    :param written: how often each object was written.
    """

    objects: dict[str, tuple[bytes, ObjectInfo]] = field(default_factory=dict)
    requests: dict[int, Counter[str]] = field(default_factory=dict)
    written: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)


class BucketOf:
    """The bucket as one machine reaches it: an `ObjectStore`.

    :param latency: mean seconds of a request, there and back.
    :param faults: the part of requests that are answered by an error: half of them were carried out all the same.
    """

    def __init__(
        self, bucket: Bucket, machine: Machine, fate: Fate, latency: float = 0.03, faults: float = 0.0
    ) -> None:
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
            return self._store(key, body) if not refused or there is None else there[1].etag

        return self._request("put", key, write)

    def upload(self, key: str, path: Path) -> None:
        self._request("upload", key, lambda: self._store(key, path.read_bytes()))

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        body, _ = self._request("get", key, lambda: self._found(key))
        yield body[start:] if length is None else body[start : start + length]

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

    def _store(self, key: str, body: bytes) -> str:
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()  # as S3 does: equal bodies have equal etags
        self._bucket.objects[key] = body, ObjectInfo(key, len(body), EPOCH + int(self._machine.time.now), etag)
        self._bucket.written[key] += 1
        return etag

    def _request(self, verb: str, key: str, act: Callable[[], T]) -> T:
        """One request: the way there, the act, which is atomic, and the way back, of an error as well."""
        self._machine.sleep(self._travel())
        try:
            return self._carried_out(f"{verb} {key.split('/')[0]}", self.location(key).uri, act)
        finally:
            self._machine.sleep(self._travel())

    def _carried_out(self, step: str, uri: str, act: Callable[[], T]) -> T:
        machine = self._machine
        with self._bucket.lock:
            self._fate.before(machine, step)
            self._bucket.requests.setdefault(int(machine.time.now), Counter())[step] += 1
            luck = machine.random.random()
            if luck < self._faults / 2:
                raise StoreUnavailable(uri, "simulated")
            try:
                answer = act()
            except ArtifactError:
                self._fate.after(machine, step, done=False)
                raise
            self._fate.after(machine, step)
            if luck < self._faults:
                raise StoreUnavailable(uri, "simulated, though it was done")
            return answer

    def _travel(self) -> float:
        return self._machine.random.expovariate(2 / self._latency)


class BucketSource:
    """The bucket as a restore reads it: a `Source`, and its own only `Reader`'s maker."""

    def __init__(self, objects: BucketOf, name: Callable[[str], str]) -> None:
        self._objects, self._name = objects, name

    def reader(self) -> BucketReader:
        return BucketReader(self._objects, self._name)

    def uri(self, file: FileEntry) -> str:
        return self._objects.location(self._name(file.digest)).uri


class BucketReader:
    """See `Reader`."""

    def __init__(self, objects: BucketOf, name: Callable[[str], str]) -> None:
        self._objects, self._name = objects, name
        self._rest = b""

    def open(self, file: FileEntry, offset: int, length: int, timeout: float) -> None:
        self._rest = b"".join(self._objects.read(self._name(file.digest), offset, length))

    def readinto(self, buffer: memoryview) -> int:
        taken = self._rest[: len(buffer)]
        buffer[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        return len(taken)

    def abort(self) -> None:
        self._rest = b""

    def close(self) -> None:
        self._rest = b""
