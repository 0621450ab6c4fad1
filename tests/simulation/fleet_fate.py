"""Which simulated machine dies or stands still, and where: who holds the lease, before or after its n-th step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.simulation.fleet_time import Machine

TAKE = "put leases"


@dataclass(frozen=True, slots=True)
class Death:
    """`step` counts from the request that takes the lease, which is 0; `after`: when it was carried out.

    :param frozen: seconds for which the machine stands still and then goes on as if nothing had been; None: for good.
    """

    step: int
    after: bool
    frozen: float | None = None


@dataclass(slots=True)
class Deaths:
    """The first holder dies the first death, the next one the second, and so on; when all are died, holders live.

    A machine counts as a holder from its first write of a lease on.

    :param steps: what each holder did, in order.
    """

    planned: Sequence[Death] = ()
    died: int = 0
    steps: dict[str, list[str]] = field(default_factory=dict)

    def before(self, machine: Machine, step: str) -> None:
        if machine.name not in self.steps and step == TAKE:
            self.steps[machine.name] = []
        if machine.name in self.steps:
            self._meet(machine, after=False)

    def after(self, machine: Machine, step: str, *, done: bool = True) -> None:
        if machine.name not in self.steps:
            return
        if step == TAKE and not done and not self.steps[machine.name]:
            del self.steps[machine.name]  # wanted the lease, and another was faster
            return
        self._meet(machine, after=True)
        self.steps[machine.name].append(step)

    def step(self, machine: Machine, step: str) -> None:
        """A step that is no request."""
        self.before(machine, step)
        self.after(machine, step)

    def _meet(self, machine: Machine, *, after: bool) -> None:
        if self.died == len(self.planned):
            return
        death = self.planned[self.died]
        if (len(self.steps[machine.name]), after) == (death.step, death.after):
            self.died += 1
            if death.frozen is not None:
                machine.freeze(death.frozen)
            else:
                machine.die()
