"""Who enters the core when, over a scripted engine that prefills a request a step, as the Neuron plugin's does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.engine import core_queue
from handler.engine.core_queue import CoreQueue, RequestGroup
from handler.engine.queue_limits import MIXED, ONE_BY_ONE, PaceLimit, QueueLimits, queue_limits
from handler.errors import EngineFailed
from handler.neuron.engine_plan import EnginePlan

LONG_REPLY = 1000


def paced(pace: PaceLimit | None, slots: int = 1000) -> QueueLimits:
    return QueueLimits(slots, slots, 0, pace)


class Scripted:
    """An engine, by the requests that it has: True from when one has had its first token."""

    def __init__(self, limits: QueueLimits, reply: int = LONG_REPLY) -> None:
        self.had: dict[str, bool] = {}
        self.order: list[str] = []
        self.tasks: dict[str, asyncio.Task[bool]] = {}
        self.gone: set[str] = set()
        self.queue = CoreQueue(limits, asyncio.get_running_loop(), lambda name: self.had.get(name) is False)
        for _ in range(200):
            self.queue.replied(reply)
        self.queue.step(streams=True)

    async def ask(self, *names: str, tokens: int = 10, group: RequestGroup | None = None, paced: bool = True) -> None:
        """Requests, which go to the engine as soon as they may."""

        async def request(name: str) -> bool:
            may = await self.queue.turn(name, tokens, lambda: name not in self.gone, group=group, paced=paced)
            if may:
                self.had[name] = False
                self.order.append(name)
            return may

        for name in names:
            self.tasks[name] = asyncio.create_task(request(name))
        await settled()

    async def step(self, *prefilled: str) -> None:
        """The engine has made a step in which these had their first token."""
        for name in prefilled:
            self.had[name] = True
        self.queue.step()
        await settled()

    async def leave(self, name: str) -> None:
        """A sequence has ended, or was aborted."""
        del self.had[name]
        self.queue.left(name)
        await settled()

    def under_way(self) -> list[str]:
        return [name for name, first in self.had.items() if not first]


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def on_a_loop(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Makes a test of a coroutine function."""

    @wraps(story)
    def run(**arguments: Any) -> None:
        asyncio.run(asyncio.wait_for(story(**arguments), 20))

    return run


@on_a_loop
async def test_one_by_one_each_goes_when_the_last_has_its_first_token() -> None:
    engine = Scripted(paced(ONE_BY_ONE))
    await engine.ask("a", "b", "c")
    assert (engine.order, engine.queue.waiting) == (["a"], 2)
    await engine.step()  # a step of others
    assert engine.order == ["a"]
    await engine.step("a")
    assert (engine.order, engine.queue.waiting) == (["a", "b"], 1)
    await engine.step("b")
    await engine.step("c")
    await engine.ask("d")
    assert (engine.order, engine.queue.waiting) == (["a", "b", "c", "d"], 0)


@on_a_loop
async def test_prompts_share_the_tokens_and_two_go_however_long_they_are() -> None:
    engine = Scripted(paced(PaceLimit(2, 100)))
    await engine.ask("a", "b", "c", tokens=40)
    assert engine.order == ["a", "b"]
    await engine.step("a")
    assert engine.order == ["a", "b", "c"]
    await engine.step("b", "c")
    await engine.ask("d", "e", "f", tokens=5000)
    assert engine.under_way() == ["d", "e"]

    short = Scripted(paced(PaceLimit(2, 100)))
    await short.ask(*"abcdefghijk", tokens=10)
    assert short.order == list("abcdefghij")


@on_a_loop
async def test_what_may_compile_long_holds_up_nobody_and_its_request_goes_one_by_one() -> None:
    engine = Scripted(paced(ONE_BY_ONE))
    await engine.ask("a1", "a2", "a3", group=RequestGroup(), paced=False)
    await engine.ask("b", "c")
    assert engine.order == ["a1", "b"]
    await engine.step("b")
    assert engine.order == ["a1", "b", "c"]
    await engine.step("a1")
    assert engine.order == ["a1", "b", "c", "a2"]
    await engine.leave("a2")
    assert engine.order == ["a1", "b", "c", "a2", "a3"]


@pytest.mark.parametrize(("reply", "at_once"), [(1, 32), (2, 32), (8, 16), (64, 3), (LONG_REPLY, 1)])
@on_a_loop
async def test_a_burst_is_spread_over_no_more_than_a_quarter_of_a_replys_steps(reply: int, at_once: int) -> None:
    engine = Scripted(paced(ONE_BY_ONE), reply)
    await engine.ask("first")
    await engine.ask(*(f"{number}" for number in range(32)))
    await engine.step("first")
    assert abs(len(engine.under_way()) - at_once) <= 1  # a burst is counted as it is when one looks


@on_a_loop
async def test_a_burst_of_long_prompts_is_no_more_than_a_step_holds() -> None:
    engine = Scripted(paced(MIXED), reply=1)
    await engine.ask(*(f"{number}" for number in range(32)), tokens=1000)
    assert engine.order == ["0", "1"]
    await engine.step("0")
    assert engine.order == ["0", "1", "2"]


@on_a_loop
async def test_nobody_waits_before_anything_is_known_of_the_replies() -> None:
    fresh = CoreQueue(paced(ONE_BY_ONE), asyncio.get_running_loop(), lambda name: True)
    fresh.step(streams=True)
    turns = [asyncio.create_task(fresh.turn(name, 100, lambda: True)) for name in "abcdef"]
    await settled()
    assert [turn.done() for turn in turns] == [True] * 6
    for _ in range(200):
        fresh.replied(LONG_REPLY)
    late = asyncio.create_task(fresh.turn("g", 1000, lambda: True))
    await settled()
    assert (late.done(), fresh.waiting) == (False, 1)
    fresh.end(EngineFailed("it died"))
    with pytest.raises(EngineFailed):
        await late


@on_a_loop
async def test_nobody_waits_while_no_token_of_those_that_run_is_shown() -> None:
    engine = Scripted(paced(ONE_BY_ONE))
    await engine.ask("a", "b", "c")
    engine.queue.step(streams=None)  # a prefill of others
    await settled()
    assert engine.order == ["a"]
    engine.queue.step(streams=False)
    await settled()
    assert engine.order == ["a", "b", "c"]


@on_a_loop
async def test_one_whose_client_is_gone_costs_no_prefill_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_queue, "CHECK_SECONDS", 0.01)
    engine = Scripted(paced(ONE_BY_ONE))
    await engine.ask("a", "b", "c", "d")
    engine.gone |= {"b", "d"}
    await engine.step("a")
    assert engine.order == ["a", "c"]
    assert await engine.tasks["d"] is False  # though the engine says nothing any more
    assert engine.queue.waiting == 0


@on_a_loop
async def test_one_that_the_engine_no_longer_has_makes_room_though_it_never_had_a_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core_queue, "CHECK_SECONDS", 0.01)
    engine = Scripted(paced(ONE_BY_ONE))
    await engine.ask("a", "b")
    del engine.had["a"]  # aborted: no message will tell
    assert await engine.tasks["b"] is True


@on_a_loop
async def test_an_engine_that_is_held_up_is_waited_for_no_longer_than_its_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core_queue, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(core_queue, "MAX_PREFILL_SECONDS", 0.05)
    engine = Scripted(paced(ONE_BY_ONE))
    await engine.ask("a", "b")
    assert engine.order == ["a"]
    assert await engine.tasks["b"] is True


@on_a_loop
async def test_a_cancelled_wait_leaves_nothing() -> None:
    engine = Scripted(paced(ONE_BY_ONE))
    await engine.ask("a", "b", "c")
    engine.tasks["b"].cancel()
    await settled()
    await engine.step("a")
    assert engine.order == ["a", "c"]
    await engine.ask("d")
    engine.had["c"] = True
    engine.queue.step()  # it is told that it may, and cancelled before it has heard it
    engine.tasks["d"].cancel()
    await settled()
    await engine.ask("e")
    assert engine.order == ["a", "c", "e"]


@on_a_loop
async def test_a_trial_has_not_begun_before_the_engine_knows_it() -> None:
    engine, begun = Scripted(paced(None)), list[str]()
    await engine.ask("a")
    await engine.ask("b", group=RequestGroup(alone=True, begun=lambda: begun.append("b")))
    del engine.had["a"]
    engine.queue.left("a")
    engine.queue.step()  # it is told that it may
    engine.queue.step()  # the engine has a further message, and "b" has not run yet
    assert begun == []
    await settled()
    await engine.step("b")
    assert begun == ["b"]


@on_a_loop
async def test_when_the_engine_is_gone_everyone_hears_it_now_and_later() -> None:
    engine = Scripted(paced(ONE_BY_ONE))
    await engine.ask("a", "b", "c")
    engine.queue.end(EngineFailed("it died"))
    await settled()
    await engine.ask("d")
    assert [type(engine.tasks[name].exception()) for name in "bcd"] == [EngineFailed] * 3
    assert engine.order == ["a"]


EIGHT = QueueLimits(slots=8, share=4, reserved=1)


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@on_a_loop
async def test_one_request_holds_its_share_and_the_rest_waits_its_turn() -> None:
    engine = Scripted(EIGHT)
    flood = names("flood", 20)
    await engine.ask(*flood, group=RequestGroup())
    assert (engine.order, engine.queue.waiting) == (flood[:4], 16)
    await engine.leave("flood1")
    assert (engine.order, engine.queue.waiting) == (flood[:5], 15)


@on_a_loop
async def test_further_sequences_of_several_requests_leave_a_slot_for_a_first_one() -> None:
    engine = Scripted(EIGHT)
    for letter, count in (("x", 10), ("y", 10), ("z", 3)):
        await engine.ask(*names(letter, count), group=RequestGroup())
    assert sorted(engine.order) == sorted([*names("x", 4), *names("y", 3), "z0"])
    await engine.ask("chat")
    assert "chat" in engine.order  # it waits inside the core, which has eight
    await engine.ask("second chat")
    assert "second chat" not in engine.order
    await engine.leave("x0")
    assert "second chat" in engine.order  # and no further sequence before it


@on_a_loop
async def test_first_sequences_pass_further_ones_but_not_for_ever() -> None:
    engine = Scripted(QueueLimits(slots=2, share=2, reserved=0))
    await engine.ask("pair0", "pair1", group=RequestGroup())
    await engine.ask("a", "b", "c")
    flood = RequestGroup()
    await engine.ask("flood0", "flood1", group=flood)
    await engine.ask(*names("late", 8))
    for leaves in [*engine.order, "b", "c", "flood0", *names("late", 4)]:
        await engine.leave(leaves)
    order = [name for name in engine.order if name.startswith(("flood", "late"))]
    assert order.index("flood0") == 0
    assert 1 < order.index("flood1") < 5


@pytest.mark.parametrize("seed", range(20))
@on_a_loop
async def test_whatever_happens_nobody_is_lost_and_no_limit_is_passed(seed: int) -> None:
    """Requests with some sequences each arrive, leave, are cancelled and end in any order."""
    draw = random.Random(seed)
    slots = draw.randint(1, 12)
    share = draw.randint(1, slots)
    limits = QueueLimits(slots, share, draw.randint(0, min(slots - 1, 2)), draw.choice((None, MIXED, ONE_BY_ONE)))
    engine, groups, unpaced = Scripted(limits), dict[str, RequestGroup](), set[str]()
    for step in range(200):
        action = draw.random()
        if action < 0.35:
            group = RequestGroup()
            asked = names(f"{step}.", draw.choice((1, 1, 1, 5, 30)))
            groups |= dict.fromkeys(asked, group)
            quick = draw.random() < 0.7
            unpaced |= set() if quick else set(asked)
            await engine.ask(*asked, group=group, tokens=draw.choice((1, 500)), paced=quick)
        elif action < 0.45 and engine.tasks:
            engine.tasks[draw.choice(list(engine.tasks))].cancel()
            await settled()
        elif engine.had:
            name = draw.choice(list(engine.had))
            await (engine.step(name) if draw.random() < 0.5 else engine.leave(name))
        held = [sum(groups[name] is group for name in engine.had) for group in set(groups.values())]
        assert max(held, default=0) <= max(share, 1)
        assert len(engine.had) <= limits.first
        compiling = [groups[name] for name in engine.under_way() if name in unpaced]
        assert all(compiling.count(group) == 1 for group in compiling)
    for _ in range(3000):
        if not engine.had:
            break
        await engine.leave(next(iter(engine.had)))
    assert engine.queue.waiting == 0
    assert all(task.done() for task in engine.tasks.values())
    assert not any(group.held for group in groups.values())


@pytest.mark.parametrize(
    ("line", "tokens", "pace"),
    [
        ("cpu", None, MIXED),
        ("nxdi-0.16", None, ONE_BY_ONE),
        ("cpu", 0, None),
        ("nxdi-0.16", 0, None),
        ("cpu", 512, PaceLimit(2, 512)),
        ("nxdi-0.16", 4096, PaceLimit(1, 4096)),
    ],
)
def test_the_pace_of_a_line_and_the_setting(line: str, tokens: int | None, pace: PaceLimit | None) -> None:
    assert queue_limits(EndpointConfig(prefill_tokens=tokens), EnginePlan(line, {}), 64).pace == pace


def test_a_burst_may_be_as_long_as_a_step_of_the_plan() -> None:
    plan = EnginePlan("cpu", {"max_num_batched_tokens": 8192})
    assert queue_limits(EndpointConfig(), plan, 64).pace == PaceLimit(MIXED.requests, MIXED.tokens, 8192)


@pytest.mark.parametrize(
    ("config", "slots", "share", "reserved"),
    [
        (EndpointConfig(), 64, 32, 8),
        (EndpointConfig(), 4, 2, 1),
        (EndpointConfig(), 1, 1, 0),
        (EndpointConfig(slot_share=0.25), 64, 16, 8),
        (EndpointConfig(slot_share=1), 64, 64, 0),
        (EndpointConfig(batch_transform=True), 64, 64, 0),
    ],
)
def test_the_share_of_a_request(config: EndpointConfig, slots: int, share: int, reserved: int) -> None:
    limits = queue_limits(config, EnginePlan("cpu", {}), slots)
    assert (limits.slots, limits.share, limits.reserved) == (slots, share, reserved)
