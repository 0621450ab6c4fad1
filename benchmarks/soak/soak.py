"""Runs a soak test: clients of every kind saturate a server, and afterwards it must hold no resources of theirs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from benchmarks.soak.soak_requests import OURS, Maker, SoakRequest, large, one_of_each_size
from benchmarks.soak.soak_state import Held, StateWatch
from benchmarks.soak.soak_visit import HOST, Visitor, WrongReply

GROWTH = 0.05
# Until a server that nobody asks any more must hold nothing. gunicorn waits 2 s for a client to close its end.
SETTLE_S = 30.0
# Of the visitors: of a hundred.
STAY, LEAVE, DAWDLE, SESSION = 58, 28, 6, 3
SHOWN = 20
# Of the prompts that a CPU engine is request for one by one before anything is counted; the context is 1,024.
SIZES = 1000
TOKEN = SoakRequest("one token", "/v1/completions", b'{"prompt": "a", "max_tokens": 1}', mark=b'"usage"')


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """:ivar visitors: at a time. :ivar seed: of their dice.

    :ivar sizes: prompts of 1 to so many tokens are request for one by one before anything is counted.
    """

    seconds: float
    warm_seconds: float
    visitors: int = 48
    seed: int = 0
    mix: Mapping[Maker, int] = field(default_factory=lambda: OURS)
    ours: bool = True
    sizes: int = 0


@dataclass(slots=True)
class Soak:
    """What was seen. `samples` are taken under load, by seconds since the measured part began.

    :ivar others: connections of others than the visitors, open before they came.
    :ivar start, filled: before anybody came, and when prompts of all sizes have been request for.
    """

    warm: Held
    end: Held
    visits: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    samples: list[tuple[float, Held]] = field(default_factory=list)
    slots: int = 0
    others: int = 0
    start: Held | None = None
    filled: Held | None = None

    def leaks(self) -> list[str]:
        """What is held at the end that was not held after the warm-up."""
        found = [f"{name}: {value} left" for name, value in _busy(self.end).items() if value]
        if self.end.sockets > self.others:
            found.append(f"sockets: {self.others} before, {self.end.sockets} left")
        for name in ("tasks", "threads", "fds", "core_threads", "core_fds"):
            before, after = getattr(self.warm, name), getattr(self.end, name)
            if after > before:
                found.append(f"{name}: {before} after the warm-up, {after} at the end")
        return found

    def growth(self) -> dict[str, float]:
        """Of both processes, idle after the warm-up and idle at the end: 0.05 is 5 % of what was resident.

        What comes and goes of files' pages is left out, or it could hide a leak.
        """
        before, after = self.warm, self.end
        return {
            "http_rss": (after.http_own - before.http_own) / before.http_rss,
            "core_rss": (after.core_own - before.core_own) / before.core_rss,
        }

    def saturated(self) -> float:
        """The share of the samples in which requests waited for a slot."""
        return sum(held.running > self.slots for _, held in self.samples) / max(1, len(self.samples))

    def violations(self) -> list[str]:
        grown = [f"{name} grew by {share:.1%}" for name, share in self.growth().items() if share >= GROWTH]
        return [*self.wrong[:SHOWN], *self.leaks(), *grown]


async def soak(watch: StateWatch, port: int, plan: SoakPlan, slots: int) -> Soak:
    """Runs it; raises nothing for what the server does wrong, which the result tells."""
    pick = Random(plan.seed)
    start = await asyncio.to_thread(watch.look)
    others = start.sockets
    visits: Counter[str] = Counter()
    wrong: list[str] = []
    for request in one_of_each_size(plan.sizes, pick):
        try:
            await Visitor(port, pick).stay(request)
        except (WrongReply, OSError, TimeoutError) as error:
            wrong.append(f"{type(error).__name__}: {error}")
    filled = await settled(watch, port, others)
    if plan.ours:
        await _fill_pool(watch, port, plan.visitors * 2)
    await _visit(port, plan, pick, plan.warm_seconds, visits, wrong)
    warm = await settled(watch, port, others)
    visits.clear()
    samples: list[tuple[float, Held]] = []
    sampling = asyncio.create_task(_sample(watch, plan.seconds, samples))
    await _visit(port, plan, pick, plan.seconds, visits, wrong)
    await sampling
    return Soak(warm, await settled(watch, port, others), visits, wrong, samples, slots, others, start, filled)


async def _fill_pool(watch: StateWatch, port: int, threads: int) -> None:
    """gunicorn's pool grows with the most that it ever had to do at once: it is let grow before anything is counted."""
    connections = [await asyncio.open_connection(HOST, port) for _ in range(threads)]
    for _, writer in connections:
        writer.write(b"GET /ping HTTP/1.1\r\n")  # a thread reads the rest of it
    end = time.monotonic() + SETTLE_S
    while (await asyncio.to_thread(watch.look)).threads < threads and time.monotonic() < end:
        await asyncio.sleep(0.1)
    for _, writer in connections:
        writer.close()


async def settled(watch: StateWatch, port: int, others: int) -> Held:
    """As soon as no request and no visitor's connection is held any more; or as it is when the patience has ended."""
    end = time.monotonic() + SETTLE_S
    while True:
        # The core tells of its requests with a step: one more token makes one.
        await Visitor(port, Random(0)).stay(TOKEN)
        held = await asyncio.to_thread(watch.look)
        if (held.idle and held.sockets <= others) or time.monotonic() > end:
            return held
        await asyncio.sleep(0.2)


async def _visit(
    port: int, plan: SoakPlan, pick: Random, seconds: float, visits: Counter[str], wrong: list[str]
) -> None:
    end = time.monotonic() + seconds

    async def place(dice: Random) -> None:
        visitor = Visitor(port, dice)
        while time.monotonic() < end:
            try:
                visits[await _one(visitor, plan, dice)] += 1
            except (WrongReply, OSError, TimeoutError) as error:
                wrong.append(f"{type(error).__name__}: {error}")

    await asyncio.gather(*(place(Random(pick.random())) for _ in range(plan.visitors)))


async def _one(visitor: Visitor, plan: SoakPlan, dice: Random) -> str:
    roll = dice.randrange(100)
    makers: Sequence[Maker] = list(plan.mix)
    request = dice.choices(makers, list(plan.mix.values()))[0](dice)
    if roll < STAY:
        await visitor.stay(request)
        return request.kind
    if roll < STAY + LEAVE:
        await visitor.leave(request)
        return "left at any moment"
    if roll < STAY + LEAVE + DAWDLE:
        await visitor.dawdle(large(dice))
        return "slow readers"
    if not plan.ours:
        await visitor.stay(request)
        return request.kind
    if roll < STAY + LEAVE + DAWDLE + SESSION:
        await visitor.session()
        return "sessions"
    await visitor.converse()
    return "WebSockets"


async def _sample(watch: StateWatch, seconds: float, samples: list[tuple[float, Held]]) -> None:
    began = time.monotonic()
    while (at := time.monotonic() - began) < seconds:
        samples.append((at, await asyncio.to_thread(watch.look)))
        await asyncio.sleep(min(2.0, seconds / 20))


def _busy(held: Held) -> dict[str, int]:
    return {"slots": held.in_engine, "places": held.in_flight, "the core's requests": held.running}
