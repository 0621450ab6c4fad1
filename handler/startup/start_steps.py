"""Runs the steps of a start side by side: each in its own thread, as soon as the steps that it needs have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from handler.errors import EndpointError, StartFailed
from handler.start_failure import in_one_line
from handler.startup.lifecycle import Lifecycle


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a start.

    :param run: called with the results of the needed steps, in their order.
    :param needs: the names of the steps that must have ended before.
    """

    name: str
    run: Callable[..., object]
    needs: tuple[str, ...] = ()


class StepsEnded(Exception):
    """The start has failed in its own thread, so its steps end."""


class StartSteps:
    """The steps of one start. The first failure ends all of them. The lifecycle is told when each begins and ends.

    Their threads stay until `end`, so that none of them ends while the engine's core is forked. MKL, with which torch
    multiplies on a CPU, keeps a lock while a thread that has used it ends: a core that is forked just then would have
    the lock, nobody to free it, and would wait for it for ever.
    """

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._results: dict[str, object] = {}
        self._failure: tuple[str, BaseException] | None = None
        self._changed = threading.Condition()
        self._ended = threading.Event()

    def begin(self, steps: Iterable[Step]) -> None:
        for step in steps:
            threading.Thread(target=self._run, args=(step,), name=f"start: {step.name}", daemon=True).start()

    def result(self, name: str) -> Any:
        """Waits for a step and returns its result.

        :raises BaseException: the first failure of any step.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or name in self._results)
            self.check(name)
            return self._results[name]

    def check(self, name: str = "") -> None:
        """Call now and then in a long step: a step of a failed start must end.

        :raises BaseException: the first failure of any step. Outside of its own step it names that step.
        """
        if self._failure is None:
            return
        failed, error = self._failure
        if name == failed or isinstance(error, EndpointError | StepsEnded):
            raise error
        raise StartFailed(failed, f"{type(error).__name__}: {in_one_line(error)}.") from error

    def end(self) -> None:
        """Ends the steps that are still running, at their next `check`, and all their threads."""
        self._fail("", StepsEnded())
        self._ended.set()

    def _run(self, step: Step) -> None:
        try:
            needed = [self.result(name) for name in step.needs]
            with self._lifecycle.step(step.name, step.needs):
                result = step.run(*needed)
        except BaseException as error:  # the start's own thread reports it
            self._fail(step.name, error)
            return
        with self._changed:
            self._results[step.name] = result
            self._changed.notify_all()
        self._ended.wait()

    def _fail(self, name: str, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or (name, error)
            self._changed.notify_all()
