"""Virtual time: many simulated processes in one thread, each a greenlet that runs until it waits.

The order of events follows from the seed alone, and an hour of waiting takes as long as what is done in it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random

from greenlet import greenlet

from handler.artifacts.lease.lease import Cancel

EPOCH = 1_800_000_000.0
# S3 refuses requests of a machine whose date is off by 15 minutes. Seconds.
MOST_SKEW = 600.0


class Killed(BaseException):
    """The end of a simulated process. Not an Exception: nothing may fix it, and what a dead process still tries to do
    on the way out (`finally`) raises it again."""


class Waiter:
    """A greenlet that waits. Whoever is first, its time or `VirtualTime.wake`, lets it run."""

    __slots__ = ("greenlet", "machine", "woken")

    def __init__(self, waiting: greenlet, machine: Machine) -> None:
        self.greenlet, self.machine, self.woken = waiting, machine, False


class VirtualTime:
    """The one clock, and whoever waits for it. `now` in seconds; `machine`: whose greenlet runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._running: Machine | None = None
        self._hub = greenlet.getcurrent()
        self._waiting: list[tuple[float, int, Waiter]] = []
        self._numbers = itertools.count()

    @property
    def machine(self) -> Machine:
        assert self._running is not None, "nothing is simulated now"
        return self._running

    def spawn(self, machine: Machine, run: Callable[[], None], at: float) -> None:
        """Begins something on a machine. What it raises ends the simulation, except for its machine's death."""

        def guarded() -> None:
            try:
                machine.check()
                run()
            except Killed:
                pass

        self._push(at, Waiter(greenlet(guarded, parent=self._hub), machine))

    def sleep(self, machine: Machine, seconds: float) -> None:
        """Lets the others run."""
        machine.check()
        waiter = self.waiter(machine)
        self._push(self.now + max(seconds, 0.0), waiter)
        self.park(waiter)

    def waiter(self, machine: Machine) -> Waiter:
        """For `park` and `wake`: the greenlet that runs."""
        return Waiter(greenlet.getcurrent(), machine)

    def park(self, waiter: Waiter, timeout: float | None = None) -> None:
        """Waits until somebody wakes the waiter.

        :raises Killed: the machine has died in the meantime.
        """
        if timeout is not None:
            self._push(self.now + timeout, waiter)
        waiter.machine.waiters[waiter] = None
        self._hub.switch()
        del waiter.machine.waiters[waiter]
        waiter.machine.check()

    def wake(self, waiter: Waiter) -> None:
        if not waiter.woken:
            self._push(self.now, waiter)

    def run(self, ended: Callable[[], bool] = lambda: False) -> None:
        """Until nobody waits any more, or the simulation has ended."""
        while self._waiting and not ended():
            at, _, waiter = heapq.heappop(self._waiting)
            if waiter.woken:
                continue
            if at < waiter.machine.frozen_until:
                self._push(waiter.machine.frozen_until, waiter)
                continue
            waiter.woken = True
            self.events += 1
            self.now, self._running = at, waiter.machine
            waiter.greenlet.switch()
        self._running = None

    def _push(self, at: float, waiter: Waiter) -> None:
        heapq.heappush(self._waiting, (at, next(self._numbers), waiter))


class Machine:
    """One process on a machine: a `Clock` whose clocks are the machine's own. Times in seconds.

    Its monotonic clock began at some time of its own and runs up to 2 % too fast or slow; its date is up to ten minutes
    off, of the fifteen that S3 allows.
    """

    def __init__(self, time: VirtualTime, name: str, seed: int) -> None:
        self.time, self.name, self.random = time, name, Random(seed)
        self.dead = False
        self.frozen_until = 0.0
        self.waiters: dict[Waiter, None] = {}
        self._rate = self.random.uniform(0.98, 1.02)
        self._began = self.random.uniform(0, 1e6)
        self._date = self.random.uniform(-MOST_SKEW, MOST_SKEW)

    def successor(self) -> Machine:
        """The next process on the same machine, by the same clocks."""
        process = Machine(self.time, self.name, self.random.getrandbits(64))
        process._rate, process._began, process._date = self._rate, self._began, self._date
        return process

    def check(self) -> None:
        """:raises Killed: this machine is dead."""
        if self.dead:
            raise Killed

    def kill(self) -> None:
        """Ends everything that runs here, the next time that it would go on."""
        self.dead, self.frozen_until = True, 0.0
        for waiter in self.waiters:
            self.time.wake(waiter)

    def die(self) -> None:
        """Ends the caller as well."""
        self.kill()
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
