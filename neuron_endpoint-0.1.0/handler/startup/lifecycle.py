"""The state of the endpoint, which /ping reports: starting (with its stage), ready, draining or failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from handler.errors import Draining, EngineFailed, NotReady

# The last stage of a compile without devices: the artifacts are in the store, and no request is served.
COMPILED: Final = "compiled"


class ServingStatus(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Status:
    """The state, and the progress of the current stage.

    :param stage: the stage of the start.
    :param since: monotonic seconds at which the stage began.
    :param done, total: the stage's progress, in bytes. 0 if it is not known.
    :param rate: bytes per second in the last few seconds.
    :param waiting: what the stage waits for, if it only waits.
    :param reason: why the endpoint failed.
    """

    state: ServingStatus
    stage: str
    since: float
    done: int = 0
    total: int = 0
    rate: float = 0.0
    waiting: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One step of the start, which may run beside others. Times are monotonic seconds.

    :param waited_for: the steps that had to end before it began.
    :param ended: None while it runs.
    :param done, total, rate: its progress, as in `Status`.
    """

    name: str
    waited_for: tuple[str, ...]
    began: float
    ended: float | None = None
    done: int = 0
    total: int = 0
    rate: float = 0.0


class Lifecycle:
    """The state of the endpoint. The start, the watchdog and signals change it; every request reads it. Thread-safe.

    :param stage_ended: called with each finished stage and its seconds.
    :param step_ended: called with each finished step.
    :param became_ready: called once.
    :param failed: called once, with the reason.
    :ivar changed: called after each change of the state or the stage, before the other functions.
    :ivar served: whether the endpoint has been ready.
    :ivar stages: the finished stages of the start, in order, each with its seconds.
    :ivar steps: the steps that run beside each other, by name, in the order in which they began.
    """

    __slots__ = (
        "_became_ready",
        "_failed",
        "_lock",
        "_prefix",
        "_stage_ended",
        "_status",
        "_step_ended",
        "began",
        "changed",
        "served",
        "stages",
        "steps",
    )

    def __init__(
        self,
        stage_ended: Callable[[str, float], None] = lambda stage, seconds: None,
        became_ready: Callable[[], None] = lambda: None,
        failed: Callable[[str], None] = lambda reason: None,
        step_ended: Callable[[TimedStep], None] = lambda step: None,
    ) -> None:
        self._step_ended = step_ended
        self._stage_ended = stage_ended
        self._became_ready = became_ready
        self._failed = failed
        self._lock = threading.Lock()
        self.changed: Callable[[], None] = lambda: None
        self.began = time.monotonic()
        self.served = False
        self.stages: tuple[tuple[str, float], ...] = ()
        self.steps: dict[str, TimedStep] = {}
        self._prefix = ""
        self._status = Status(ServingStatus.STARTING, "bind port", self.began)

    @property
    def status(self) -> Status:
        return self._status

    def stage(self, name: str) -> None:
        """Begins the next stage of the start."""
        self._end_stage(ServingStatus.STARTING, f"{self._prefix}{name}")

    def label(self, prefix: str) -> None:
        """Sets a prefix for the names of the next stages, as in `compile: start engine`."""
        self._prefix = f"{prefix}: " if prefix else ""

    @contextmanager
    def step(self, name: str, waited_for: tuple[str, ...] = ()) -> Iterator[None]:
        """Within it, a step runs beside the stages and other steps."""
        with self._lock:
            self.steps = {**self.steps, name: TimedStep(name, waited_for, time.monotonic())}
        try:
            yield
        finally:
            with self._lock:
                ended = replace(self.steps[name], ended=time.monotonic())
                self.steps = {**self.steps, name: ended}
            self._step_ended(ended)

    def progress(self, done: int, total: int, rate: float = 0.0, waiting: str = "", step: str = "") -> None:
        """Reports the progress of a step, or that of the current stage if it is called the same or no step is given."""
        with self._lock:
            if step in self.steps:
                self.steps = {**self.steps, step: replace(self.steps[step], done=done, total=total, rate=rate)}
            if step in ("", self._status.stage):
                self._status = replace(self._status, done=done, total=total, rate=rate, waiting=waiting)

    def ready(self) -> None:
        if self._end_stage(ServingStatus.READY, "ready"):
            self._became_ready()

    def drain(self) -> None:
        """Rejects new requests from now on, after SIGTERM. A failed endpoint stays failed."""
        with self._lock:
            if self._status.state is not ServingStatus.FAILED:
                self._status = Status(ServingStatus.DRAINING, "draining", time.monotonic())
        self.changed()

    def fail(self, reason: str) -> None:
        with self._lock:
            if self._status.state is ServingStatus.FAILED:
                return
            self._status = Status(ServingStatus.FAILED, self._status.stage, time.monotonic(), reason=reason)
        self.changed()
        self._failed(reason)

    def require_ready(self) -> None:
        """:raises NotReady, Draining, EngineFailed: no request can be accepted now."""
        status = self._status
        if status.state is ServingStatus.STARTING:
            raise NotReady(status.stage)
        if status.state is ServingStatus.DRAINING:
            raise Draining
        if status.state is ServingStatus.FAILED:
            # The full reason is in /ping and in the log, for the operator. It may contain paths of this machine.
            raise EngineFailed("its process ended" if self.served else "it could not start")

    def _end_stage(self, state: ServingStatus, name: str) -> bool:
        """Ends the current stage and begins the next. False if the endpoint is not starting any more."""
        with self._lock:
            if self._status.state is not ServingStatus.STARTING:
                return False
            before, now = self._status, time.monotonic()
            self._status = Status(state, name, now)
            self.stages += ((before.stage, now - before.since),)
            self.served = state is ServingStatus.READY
        self.changed()
        self._stage_ended(before.stage, now - before.since)
        return True
