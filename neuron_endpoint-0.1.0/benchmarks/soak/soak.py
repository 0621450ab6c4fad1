"""Runs a soak test: clients of every kind saturate a server, and afterwards it must hold no resources of theirs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from benchmarks.soak.soak_hostile import hostile_requests, hostile_visit, send_hostile
from benchmarks.soak.soak_requests import OURS, Maker, SoakRequest, large, one_of_each_size
from benchmarks.soak.soak_result import Soak
from benchmarks.soak.soak_state import Held, StateWatch
from benchmarks.soak.soak_visit import HOST, Visitor, WrongReply, message

# How long a server without clients may hold resources. gunicorn waits 2 s for a client to close its end.
SETTLE_S = 30.0
# Of a hundred visits, how many are of each kind.
VISITS = {"stay": 51, "leave": 25, "read slowly": 6, "session": 3, "WebSocket": 5, "hostile": 10}
# A thread waits for the reply to several prompts.
HELD = SoakRequest("held", "/v1/completions", b'{"prompt": ["a", "b"], "max_tokens": 900, "ignore_eos": true}')
# The default of `SoakPlan.sizes` for `make soak`; the context has 1,024 tokens.
SIZES = 1000
TOKEN = SoakRequest("one token", "/v1/completions", b'{"prompt": "a", "max_tokens": 1}', mark=b'"usage"')


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """The plan of a soak test.

    :ivar visitors: the number of clients at a time.
    :ivar seed: of the clients' random decisions.
    :ivar ours: the server is our container: it has sessions, WebSockets and a pool of threads.
    :ivar sizes: before anything is counted, one prompt of each size from 1 to this number of tokens is sent.
    """

    seconds: float
    warm_seconds: float
    visitors: int = 48
    seed: int = 0
    mix: Mapping[Maker, int] = field(default_factory=lambda: OURS)
    ours: bool = True
    sizes: int = 0


async def soak(watch: StateWatch, port: int, plan: SoakPlan, slots: int) -> Soak:
    """Runs a soak test. What the server does wrong is in the result. It is not raised.

    :param slots: how many requests the engine runs at a time.
    """
    dice = Random(plan.seed)
    start = await asyncio.to_thread(watch.look)
    visits: Counter[str] = Counter()
    wrong: list[str] = []
    for request in one_of_each_size(plan.sizes, dice):
        try:
            await Visitor(port, dice).stay(request)
        except (WrongReply, OSError) as error:
            wrong.append(f"{type(error).__name__}: {error}")
    filled = await _settled(watch, port, start.sockets)
    if plan.ours:
        await _fill_pool(watch, port, plan.visitors * 2)
        for body in hostile_requests() if plan.sizes else ():  # the core keeps their grammars
            try:
                await send_hostile(port, body)
            except WrongReply as error:
                wrong.append(str(error))
    await _load(port, plan, dice, plan.warm_seconds, visits, wrong)
    warm = await _settled(watch, port, start.sockets)
    visits.clear()
    samples: list[tuple[float, Held]] = []
    sampling = asyncio.create_task(_sample(watch, plan.seconds, samples))
    await _load(port, plan, dice, plan.seconds, visits, wrong)
    await sampling
    end = await _settled(watch, port, start.sockets)
    return Soak(warm, end, visits, wrong, samples, slots, start.sockets, start, filled)


async def _fill_pool(watch: StateWatch, port: int, threads: int) -> None:
    """Makes gunicorn start its threads before anything is counted. Its pool grows with the most calls at a time."""
    connections = [await asyncio.open_connection(HOST, port) for _ in range(threads)]
    for _, writer in connections:
        writer.write(message(HELD))
    end = time.monotonic() + SETTLE_S
    while (await asyncio.to_thread(watch.look)).threads < threads and time.monotonic() < end:
        await asyncio.sleep(0.1)
    for _, writer in connections:
        writer.close()


async def _settled(watch: StateWatch, port: int, others: int) -> Held:
    """Returns what the server holds when it has no requests and no clients, or after `SETTLE_S` at the latest.

    :param others: connections that are not of the soak's clients.
    """
    end = time.monotonic() + SETTLE_S
    while True:
        # The core reports its requests with each step. A request of one token makes it do one.
        await Visitor(port, Random(0)).stay(TOKEN)
        held = await asyncio.to_thread(watch.look)
        if (held.idle and held.sockets <= others) or time.monotonic() > end:
            return held
        await asyncio.sleep(0.2)


async def _load(
    port: int, plan: SoakPlan, dice: Random, seconds: float, visits: Counter[str], wrong: list[str]
) -> None:
    """Runs all clients for this time. Each makes one visit after the other."""
    end = time.monotonic() + seconds

    async def client(own: Random) -> None:
        while time.monotonic() < end:
            try:
                visits[await _visit(port, plan, own)] += 1
            except (WrongReply, OSError) as error:
                wrong.append(f"{type(error).__name__}: {error}")

    await asyncio.gather(*(client(Random(dice.random())) for _ in range(plan.visitors)))


async def _visit(port: int, plan: SoakPlan, dice: Random) -> str:
    """Makes one visit. Returns its kind for the report."""
    visitor = Visitor(port, dice)
    request = dice.choices(list(plan.mix), list(plan.mix.values()))[0](dice)
    match dice.choices(list(VISITS), list(VISITS.values()))[0]:
        case "leave":
            await visitor.leave(request)
            return "left at any moment"
        case "read slowly":
            await visitor.read_slowly(large(dice))
            return "slow readers"
        case "session" if plan.ours:
            await visitor.session()
            return "sessions"
        case "WebSocket" if plan.ours:
            await visitor.converse()
            return "WebSockets"
        case "hostile" if plan.ours:
            await hostile_visit(port, dice)
            return "hostile"
    await visitor.stay(request)
    return request.kind


async def _sample(watch: StateWatch, seconds: float, samples: list[tuple[float, Held]]) -> None:
    began = time.monotonic()
    while (at := time.monotonic() - began) < seconds:
        samples.append((at, await asyncio.to_thread(watch.look)))
        await asyncio.sleep(min(2.0, seconds / 20))
