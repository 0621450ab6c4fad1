"""The state of the endpoint, which /ping reports: starting (with its stage), ready, draining or failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from handler.errors import Draining, EngineFailed, NotReady

# The stage in which what was compiled is saved, and the last one of a compile without devices, which serves no request.
# Neither needs the engine any more.
PUBLISH: Final = "publish artifacts"
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


@dataclass(slots=True)
class Lifecycle:
    """The state of the endpoint. The start, the watchdog and signals change it; every request reads it. Thread-safe.

    :param stage_ended: called with each finished stage and its seconds.
    :param became_ready: called once.
    :param failed: called once, with the reason.
    :ivar status: the state now. Only the methods change it.
    :ivar changed: called after each change of the state or the stage, before the other functions.
    :ivar served: whether the endpoint has been ready.
    :ivar stages: the finished stages of the start, in order, each with its seconds.
    :ivar steps: the steps that run beside each other, by name, in the order in which they began.
    """

    stage_ended: Callable[[str, float], None] = lambda stage, seconds: None
    became_ready: Callable[[], None] = lambda: None
    failed: Callable[[str], None] = lambda reason: None
    changed: Callable[[], None] = lambda: None
    began: float = field(default_factory=time.monotonic)
    served: bool = False
    stages: tuple[tuple[str, float], ...] = ()
    steps: dict[str, TimedStep] = field(default_factory=dict)
    status: Status = field(init=False)
    _prefix: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.status = Status(ServingStatus.STARTING, "bind port", self.began)

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
                self.steps = {**self.steps, name: replace(self.steps[name], ended=time.monotonic())}

    def progress(self, done: int, total: int, rate: float = 0.0, waiting: str = "", step: str = "") -> None:
        """Reports the progress of a step, or that of the current stage if it is called the same or no step is given."""
        with self._lock:
            if step in self.steps:
                self.steps = {**self.steps, step: replace(self.steps[step], done=done, total=total, rate=rate)}
            if step in ("", self.status.stage):
                self.status = replace(self.status, done=done, total=total, rate=rate, waiting=waiting)

    def ready(self) -> None:
        if self._end_stage(ServingStatus.READY, "ready"):
            self.became_ready()

    def drain(self) -> None:
        """Rejects new requests from now on, after SIGTERM. A failed endpoint stays failed."""
        with self._lock:
            if self.status.state is not ServingStatus.FAILED:
                self.status = Status(ServingStatus.DRAINING, "draining", time.monotonic())
        self.changed()

    def fail(self, reason: str) -> None:
        """Ends the start, or the serving, with a reason. A start that SIGTERM has ended is no failure: it drains."""
        with self._lock:
            state = self.status.state
            if state is ServingStatus.FAILED or (state is ServingStatus.DRAINING and not self.served):
                return
            self.status = Status(ServingStatus.FAILED, self.status.stage, time.monotonic(), reason=reason)
        self.changed()
        self.failed(reason)

    def timeline(self) -> list[TimedStep]:
        """The steps and stages of the start, in the order in which they began; the stage that runs, or failed, too.

        A stage waited for the one before it. A stage that only waited for a step of its name is left out, and the next
        one waited for that step, too.
        """
        status, steps = self.status, self.steps
        rows, began = list(steps.values()), self.began
        before: tuple[str, ...] = ()
        for stage, seconds in self.stages:
            if stage in steps:
                before = (*before, stage)
            else:
                rows.append(TimedStep(stage, before, began, began + seconds))
                before = (stage,)
            began += seconds
        if not self.served and status.stage not in steps:
            ended = status.since if status.state is ServingStatus.FAILED else None
            rows.append(TimedStep(status.stage, before, began, ended, status.done, status.total, status.rate))
        return sorted(rows, key=lambda row: row.began)

    def require_ready(self) -> None:
        """:raises NotReady, Draining, EngineFailed: no request can be accepted now."""
        status = self.status
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
            if self.status.state is not ServingStatus.STARTING:
                return False
            before, now = self.status, time.monotonic()
            self.status = Status(state, name, now)
            self.stages += ((before.stage, now - before.since),)
            self.served = state is ServingStatus.READY
        self.changed()
        self.stage_ended(before.stage, now - before.since)
        return True
