"""Virtual time: many simulated processes in one thread, each a greenlet that runs until it sleeps.

The order of events follows from the seed alone, and an hour of waiting takes as long as what is done in it.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from random import Random

from greenlet import greenlet

from handler.artifacts.lease.clock import Cancel


class Killed(BaseException):
    """The end of a simulated process. Not an Exception: nothing may fix it, and what a dead process still tries to do
    on the way out (`finally`) raises it again."""


class VirtualTime:
    """The one clock, and whoever waits for it. `now` in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._hub = greenlet.getcurrent()
        self._thread = threading.get_ident()
        self._waiting: list[tuple[float, int, greenlet, Machine]] = []
        self._numbers = itertools.count()

    def spawn(self, machine: Machine, run: Callable[[], None], at: float) -> None:
        """Begins something on a machine. What it raises ends the simulation, except for its machine's death."""

        def guarded() -> None:
            try:
                machine.check()
                run()
            except Killed:
                pass

        self._push(at, greenlet(guarded, parent=self._hub), machine)

    def sleep(self, machine: Machine, seconds: float) -> None:
        """Lets the others run. A thread that is not simulated (a pool's) does not wait: its work takes no time."""
        machine.check()
        if threading.get_ident() != self._thread:
            return
        self._push(self.now + max(seconds, 0.0), greenlet.getcurrent(), machine)
        self._hub.switch()
        machine.check()

    def run(self) -> None:
        """Until nobody waits any more."""
        while self._waiting:
            at, _, waiter, machine = heapq.heappop(self._waiting)
            if at < machine.frozen_until:
                self._push(machine.frozen_until, waiter, machine)
                continue
            self.now = at
            waiter.switch()

    def _push(self, at: float, waiter: greenlet, machine: Machine) -> None:
        heapq.heappush(self._waiting, (at, next(self._numbers), waiter, machine))


class Machine:
    """One instance: a `Timing` whose clocks are its own. Times in seconds.

    Its monotonic clock began at some time of its own and runs up to 2 % too fast or slow; its date is up to ten minutes
    off, of the fifteen that S3 allows.
    """

    def __init__(self, time: VirtualTime, name: str, seed: int) -> None:
        self.time, self.name, self.random = time, name, Random(seed)
        self.dead = False
        self.frozen_until = 0.0
        self._rate = self.random.uniform(0.98, 1.02)
        self._began = self.random.uniform(0, 1e6)
        self._date = self.random.uniform(-600, 600)

    def check(self) -> None:
        """:raises Killed: this machine is dead."""
        if self.dead:
            raise Killed

    def die(self) -> None:
        self.dead = True
        raise Killed

    def freeze(self, seconds: float) -> None:
        """From its next wait on, nothing happens on this machine for a while; its clocks run on."""
        self.frozen_until = self.time.now + seconds

    def now(self) -> float:
        return self._began + self.time.now * self._rate

    def date(self) -> float:
        return EPOCH + self.time.now + self._date

    def sleep(self, seconds: float) -> None:
        self.time.sleep(self, seconds / self._rate)

    def every(self, seconds: float, call: Callable[[], None]) -> Cancel:
        ended = running = False

        def run() -> None:
            nonlocal running
            while True:
                self.sleep(seconds)
                if ended:
                    return
                running = True
                try:
                    call()
                finally:
                    running = False

        def cancel() -> None:
            nonlocal ended
            ended = True
            while running:
                self.sleep(0.01)

        self.time.spawn(self, run, self.time.now)
        return cancel


EPOCH = 1_800_000_000.0
