"""What happens to one simulated fleet, drawn from a seed: everything that can go wrong does so until `clear`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from random import Random

from tests.simulation.fleet_bucket import TIMEOUT, Fault


class Cause(Enum):
    """How a compile ends."""

    DONE = "done"
    REJECTED = "the compiler rejects the configuration"
    CRASHED = "the compiler crashes"
    SEGFAULT = "the compiler is ended by SIGSEGV"
    MEMORY = "neuronx-cc runs out of memory"
    SIGKILL = "the compiling process is ended by SIGKILL"
    SIGTERM = "the compiling process is ended by SIGTERM"


class Blow(Enum):
    """What happens to a machine."""

    PROCESS = "the container is killed and starts again"
    MACHINE = "the machine is lost, and another one takes its place"
    FREEZE = "the machine stands still for a while"
    ENGINE = "the engine's core dies"


class Poison(Enum):
    """What somebody writes as the record of a failed compile."""

    HUGE = "a huge duration"
    FUTURE = "a time to come"
    GARBAGE = "no JSON"
    CRASHES = "crashes on all machines"


@dataclass(frozen=True, slots=True)
class Stroke:
    """A blow at a time, or at the n-th step of the fleet."""

    blow: Blow
    at: float = 0.0
    step: int | None = None
    after: bool = False


@dataclass(frozen=True, slots=True)
class Outage:
    """Requests between two times have faults."""

    began: float
    ended: float
    rates: Mapping[Fault, float]


@dataclass(frozen=True, slots=True)
class Schedule:
    """One simulated fleet. Times in virtual seconds.

    :param clear: from then on nothing goes wrong any more.
    :param updates: at each time a new version of the endpoint is rolled out; whether its weights are other ones, too.
    :param visits: clients' requests; whether the body ends the engine.
    """

    seed: int
    machines: int
    starts: tuple[float, ...]
    clear: float
    signed: bool
    poll: float
    lease: float
    compile: tuple[float, float]
    causes: Mapping[Cause, float]
    strokes: tuple[Stroke, ...]
    outages: tuple[Outage, ...]
    poisons: tuple[tuple[float, Poison], ...]
    updates: tuple[tuple[float, bool], ...]
    visits: tuple[tuple[float, bool], ...]

    @classmethod
    def drawn(cls, seed: int) -> Schedule:
        random = Random(seed)
        machines = random.choice((2, 2, 2, 3, 4))
        clear = random.choice((150.0, 400.0, 900.0))

        def times(most: int) -> list[float]:
            return sorted(random.uniform(0, clear) for _ in range(random.randint(0, most)))

        shortest = random.uniform(15, 90)
        late = random.random() < 0.3
        return cls(
            seed,
            machines,
            tuple(random.uniform(0, clear if late and number else 20) for number in range(machines)),
            clear,
            signed=random.random() < 0.5,
            poll=random.choice((10.0, 20.0)),
            lease=random.choice((30.0, 60.0)),
            compile=(shortest, shortest * random.choice((1, 2))),
            causes=_causes(random),
            strokes=tuple(_stroke(random, clear) for _ in range(random.choice((0, 1, 1, 2, 3)))),
            outages=tuple(_outage(random, clear) for _ in range(random.choice((0, 0, 1, 2)))),
            poisons=tuple((at, random.choice(list(Poison))) for at in times(1)),
            updates=tuple((at, random.random() < 0.5) for at in times(1)) if random.random() < 0.4 else (),
            visits=tuple((at, random.random() < 0.4) for at in times(6)),
        )


def _causes(random: Random) -> dict[Cause, float]:
    """The weights of how compiles end until `clear`: two of the causes at most."""
    if random.random() < 0.4:
        return {Cause.DONE: 1.0}
    wrong = {random.choice(list(Cause)[1:]): random.uniform(0.2, 2) for _ in range(random.choice((1, 2)))}
    return {**wrong, Cause.DONE: random.choice((0.0, 0.5, 1.0))}


def _stroke(random: Random, clear: float) -> Stroke:
    blow = random.choices(list(Blow), (4, 2, 3, 3))[0]
    if blow is Blow.ENGINE or random.random() < 0.3:
        return Stroke(blow, at=random.uniform(0, clear))
    return Stroke(blow, step=int(random.triangular(0, 90, 15)), after=random.random() < 0.5)


def _outage(random: Random, clear: float) -> Outage:
    began = random.uniform(0, clear)
    rate = random.choice((0.05, 0.3, 1.0))
    faults = random.sample([fault for fault in Fault if fault is not Fault.NONE], random.choice((1, 2, 6)))
    return Outage(
        began, min(clear - TIMEOUT, began + random.expovariate(1 / 90)), {fault: rate / len(faults) for fault in faults}
    )
