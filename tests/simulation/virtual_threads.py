"""Threads, time and random ids of the product's modules, in virtual time: greenlets of the machine that runs.

So the order of a restore's and a publication's requests follows from the seed as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from types import ModuleType, TracebackType
from typing import Any, TypeVar
from uuid import UUID

from container.recovery import recovery
from handler.artifacts.lease import lease
from handler.artifacts.restore import restore
from handler.artifacts.store import artifact_store, gc_marks, publication
from handler.storage.transfer import download_directory, download_pool
from tests.simulation.fleet_time import EPOCH, VirtualTime, Waiter

# Bytes of a download's buffer. The product's own are of no use to files of 100 bytes, and take time to allocate.
BUFFER = 4096
Item = TypeVar("Item")
Result = TypeVar("Result")


class VirtualEvent:
    """As `threading.Event`."""

    def __init__(self, time: VirtualTime) -> None:
        self._time, self._set = time, False
        self._waiters: list[Waiter] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        for waiter in self._waiters:
            self._time.wake(waiter)
        self._waiters.clear()

    def wait(self, timeout: float | None = None) -> bool:
        self._time.machine.check()
        if not self._set:
            waiter = self._time.waiter(self._time.machine)
            self._waiters.append(waiter)
            self._time.park(waiter, timeout)
        return self._set


class VirtualThread:
    """As `threading.Thread`."""

    def __init__(self, time: VirtualTime, target: Callable[..., None], args: Sequence[Any]) -> None:
        self._time, self._target, self._args = time, target, args
        self._ended = VirtualEvent(time)

    def start(self) -> None:
        self._time.spawn(self._time.machine, self._run, self._time.now)

    def is_alive(self) -> bool:
        return not self._ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def _run(self) -> None:
        try:
            self._target(*self._args)
        finally:
            self._ended.set()


class VirtualPool:
    """As `ThreadPoolExecutor`, as far as `map` goes."""

    def __init__(self, time: VirtualTime, workers: int) -> None:
        self._time, self._workers = time, workers

    def __enter__(self) -> VirtualPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None

    def map(self, call: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        left = list(enumerate(items))[::-1]
        results: dict[int, Result] = {}
        errors: dict[int, BaseException] = {}

        def work() -> None:
            while left and not errors:
                number, item = left.pop()
                try:
                    results[number] = call(item)
                except BaseException as error:
                    errors[number] = error

        threads = [VirtualThread(self._time, work, ()) for _ in range(min(self._workers, len(left)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[min(errors)]
        return iter([results[number] for number in sorted(results)])


class _Threading:
    """Stands for the module `threading`."""

    Lock = staticmethod(threading.Lock)

    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    def Event(self) -> VirtualEvent:
        return VirtualEvent(self._time)

    def Thread(self, *, target: Callable[..., None], args: Sequence[Any], **_: object) -> VirtualThread:
        return VirtualThread(self._time, target, args)


class _Time:
    """Stands for the module `time`."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    def monotonic(self) -> float:
        return self._time.machine.now()

    def time(self) -> float:
        return EPOCH + self._time.now

    def sleep(self, seconds: float) -> None:
        self._time.machine.sleep(seconds)


class _Uuid:
    """Stands for the module `uuid`."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    def uuid4(self) -> UUID:
        return UUID(int=self._time.machine.random.getrandbits(128))


@contextmanager
def virtual_threads(time: VirtualTime) -> Iterator[None]:
    """Within it the product's modules have the threads, the time and the ids of the machine that runs."""

    def pool(workers: int, **_: object) -> VirtualPool:
        return VirtualPool(time, workers)

    def random() -> Random:
        return Random(time.machine.random.getrandbits(64))

    clock, threads, uuid = _Time(time), _Threading(time), _Uuid(time)
    stand_ins: list[tuple[ModuleType, dict[str, object]]] = [
        (lease, {"uuid": uuid}),
        (gc_marks, {"uuid": uuid, "time": clock}),
        (artifact_store, {"ThreadPoolExecutor": pool}),
        (publication, {"ThreadPoolExecutor": pool, "time": clock}),
        (restore, {"time": clock}),
        (download_directory, {"time": clock}),
        (download_pool, {"threading": threads, "time": clock, "Random": random, "BUFFER": BUFFER}),
        (recovery, {"time": clock}),
    ]
    real = [(module, name, getattr(module, name)) for module, names in stand_ins for name in names]
    for module, names in stand_ins:
        vars(module).update(names)
    try:
        yield
    finally:
        for module, name, found in real:
            setattr(module, name, found)
