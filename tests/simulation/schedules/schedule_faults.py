"""What goes wrong with requests and machines in a simulated fleet, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.fleet_bucket import Fault
from tests.simulation.fleet_time import Machine
from tests.simulation.schedules.schedule import Blow, Schedule, Stroke

# Faults that only one kind of request has. These requests are rare, so they have it more often.
FACTORS = {(Fault.TORN, "upload"): 5.0, (Fault.DAMAGED, "read"): 5.0}


@dataclass(slots=True)
class ScheduledFaults:
    """`Faults` of a schedule's outages."""

    schedule: Schedule

    def next(self, machine: Machine, verb: str) -> Fault:
        now = machine.time.now
        for outage in self.schedule.outages:
            if outage.began <= now < outage.ended:
                luck = machine.random.random()
                for fault, rate in outage.rates.items():
                    rate *= FACTORS.get((fault, verb), fault not in (Fault.TORN, Fault.DAMAGED))
                    if luck < rate:
                        return fault
                    luck -= rate
        return Fault.NONE


@dataclass(slots=True)
class ScheduledFate:
    """A `Fate` that counts the steps of all machines, and strikes whoever does the n-th one.

    :param say: is told of each step, for the trace.
    """

    schedule: Schedule
    strike: Callable[[Machine, Stroke], None]
    say: Callable[[Machine, str], None] | None
    steps: int = 0
    left: dict[tuple[int, bool], Stroke] = field(init=False)

    def __post_init__(self) -> None:
        self.left = {(stroke.step, stroke.after): stroke for stroke in self.schedule.strokes if stroke.step is not None}

    def before(self, machine: Machine, step: str) -> None:
        self.steps += 1
        self._meet(machine, after=False)

    def after(self, machine: Machine, step: str, *, done: bool = True) -> None:
        if self.say is not None:
            self.say(machine, step if done else f"{step}: refused")
        self._meet(machine, after=True)

    def step(self, machine: Machine, step: str) -> None:
        """A step that is no request."""
        self.before(machine, step)
        self.after(machine, step)

    def _meet(self, machine: Machine, *, after: bool) -> None:
        if not self.left or machine.time.now >= self.schedule.clear:
            return
        stroke = self.left.pop((self.steps, after), None)
        if stroke is not None and stroke.blow is not Blow.ENGINE:
            self.strike(machine, stroke)
