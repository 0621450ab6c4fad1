"""Who may go to the engine when, over a scripted engine that prefills a request a step, as the Neuron plugin's does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.engine import prefill_pace
from handler.engine.prefill_pace import MIXED, ONE_BY_ONE, PaceLimit, PrefillPace, pace_limit
from handler.errors import EngineFailed
from handler.neuron.engine_plan import EnginePlan

LONG_REPLY = 1000


class Scripted:
    """An engine, by the requests that it has: True from when one has had its first token."""

    def __init__(self, limit: PaceLimit, reply: int = LONG_REPLY) -> None:
        self.had: dict[str, bool] = {}
        self.order: list[str] = []
        self.tasks: dict[str, asyncio.Task[bool]] = {}
        self.gone: set[str] = set()
        self.pace = PrefillPace(limit, asyncio.get_running_loop(), lambda name: self.had.get(name) is False)
        for _ in range(200):
            self.pace.replied(reply)
        self.pace.step(shown=True)

    async def ask(self, *names: str, tokens: int = 10) -> None:
        """Requests, which go to the engine as soon as they may."""

        async def request(name: str) -> bool:
            may = await self.pace.turn(name, tokens, lambda: name not in self.gone)
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
        self.pace.step()
        await settled()

    def under_way(self) -> list[str]:
        return [name for name, first in self.had.items() if not first]


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 20))


def test_one_by_one_each_goes_when_the_last_has_its_first_token() -> None:
    async def story() -> None:
        engine = Scripted(ONE_BY_ONE)
        await engine.ask("a", "b", "c")
        assert (engine.order, engine.pace.waiting) == (["a"], 2)
        await engine.step()  # a step of others
        assert engine.order == ["a"]
        await engine.step("a")
        assert (engine.order, engine.pace.waiting) == (["a", "b"], 1)
        await engine.step("b")
        await engine.step("c")
        await engine.ask("d")
        assert (engine.order, engine.pace.waiting) == (["a", "b", "c", "d"], 0)

    run(story)


def test_prompts_share_the_tokens_and_two_go_however_long_they_are() -> None:
    async def story() -> None:
        engine = Scripted(PaceLimit(2, 100))
        await engine.ask("a", "b", "c", tokens=40)
        assert engine.order == ["a", "b"]
        await engine.step("a")
        assert engine.order == ["a", "b", "c"]
        await engine.step("b", "c")
        await engine.ask("d", "e", "f", tokens=5000)
        assert engine.under_way() == ["d", "e"]

        short = Scripted(PaceLimit(2, 100))
        await short.ask(*"abcdefghijk", tokens=10)
        assert short.order == list("abcdefghij")

    run(story)


def test_a_later_short_prompt_does_not_pass_an_earlier_long_one() -> None:
    async def story() -> None:
        engine = Scripted(PaceLimit(1, 100))
        await engine.ask("a", tokens=60)
        await engine.ask("long", tokens=60)
        await engine.ask("short", tokens=1)
        assert engine.order == ["a"]
        await engine.step("a")
        assert engine.order == ["a", "long", "short"]

    run(story)


@pytest.mark.parametrize(("reply", "at_once"), [(1, 32), (2, 32), (8, 16), (64, 3), (LONG_REPLY, 1)])
def test_a_burst_is_spread_over_no_more_than_a_quarter_of_a_replys_steps(reply: int, at_once: int) -> None:
    async def story() -> None:
        engine = Scripted(ONE_BY_ONE, reply)
        await engine.ask("first")
        await engine.ask(*(f"{number}" for number in range(32)))
        await engine.step("first")
        assert abs(len(engine.under_way()) - at_once) <= 1  # a burst is counted as it is when one looks

    run(story)


def test_nobody_waits_before_anything_is_known_of_the_replies() -> None:
    async def story() -> None:
        fresh = PrefillPace(ONE_BY_ONE, asyncio.get_running_loop(), lambda name: True)
        fresh.step(shown=True)
        turns = [asyncio.create_task(fresh.turn(name, 1000, lambda: True)) for name in "abcdef"]
        await settled()
        assert [turn.done() for turn in turns] == [True] * 6
        for _ in range(200):
            fresh.replied(LONG_REPLY)
        late = asyncio.create_task(fresh.turn("g", 1000, lambda: True))
        await settled()
        assert (late.done(), fresh.waiting) == (False, 1)
        fresh.end()
        assert await late

    run(story)


def test_nobody_waits_while_no_token_of_those_that_run_is_shown() -> None:
    async def story() -> None:
        engine = Scripted(ONE_BY_ONE)
        await engine.ask("a", "b", "c")
        engine.pace.step(shown=None)  # a prefill of others
        await settled()
        assert engine.order == ["a"]
        engine.pace.step(shown=False)
        await settled()
        assert engine.order == ["a", "b", "c"]

    run(story)


def test_one_whose_client_is_gone_costs_no_prefill_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill_pace, "CHECK_SECONDS", 0.01)

    async def story() -> None:
        engine = Scripted(ONE_BY_ONE)
        await engine.ask("a", "b", "c", "d")
        engine.gone |= {"b", "d"}
        await engine.step("a")
        assert engine.order == ["a", "c"]
        assert await engine.tasks["d"] is False  # though the engine says nothing any more
        assert engine.pace.waiting == 0

    run(story)


def test_one_that_the_engine_no_longer_has_makes_room_though_it_never_had_a_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prefill_pace, "CHECK_SECONDS", 0.01)

    async def story() -> None:
        engine = Scripted(ONE_BY_ONE)
        await engine.ask("a", "b")
        del engine.had["a"]  # aborted: no message will tell
        assert await engine.tasks["b"] is True

    run(story)


def test_an_engine_that_is_held_up_is_waited_for_no_longer_than_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill_pace, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(prefill_pace, "MAX_PREFILL_SECONDS", 0.05)

    async def story() -> None:
        engine = Scripted(ONE_BY_ONE)
        await engine.ask("a", "b")
        assert engine.order == ["a"]
        assert await engine.tasks["b"] is True

    run(story)


def test_a_cancelled_wait_leaves_nothing() -> None:
    async def story() -> None:
        engine = Scripted(ONE_BY_ONE)
        await engine.ask("a", "b", "c")
        engine.tasks["b"].cancel()
        await settled()
        await engine.step("a")
        assert engine.order == ["a", "c"]
        await engine.ask("d")
        engine.had["c"] = True
        engine.pace.step()  # it is told that it may, and cancelled before it has heard it
        engine.tasks["d"].cancel()
        await settled()
        await engine.ask("e")
        assert engine.order == ["a", "c", "e"]

    run(story)


def test_when_all_requests_are_ended_those_that_wait_are_too() -> None:
    async def story() -> None:
        engine = Scripted(ONE_BY_ONE)
        await engine.ask("a", "b", "c")
        engine.pace.fail(EngineFailed("it is stopped"))
        await settled()
        assert [type(engine.tasks[name].exception()) for name in "bc"] == [EngineFailed, EngineFailed]
        assert (engine.pace.waiting, engine.order) == (0, ["a"])

    run(story)


def test_when_the_engine_is_gone_everyone_goes_to_hear_it() -> None:
    async def story() -> None:
        engine = Scripted(ONE_BY_ONE)
        await engine.ask("a", "b", "c")
        engine.pace.end()
        await settled()
        await engine.ask("d")
        assert engine.order == ["a", "b", "c", "d"]

    run(story)


@pytest.mark.parametrize(
    ("line", "tokens", "limit"),
    [
        ("cpu", None, MIXED),
        ("nxdi-0.16", None, ONE_BY_ONE),
        ("cpu", 0, None),
        ("nxdi-0.16", 0, None),
        ("cpu", 512, PaceLimit(2, 512)),
        ("nxdi-0.16", 4096, PaceLimit(1, 4096)),
    ],
)
def test_the_limit_of_a_line_and_the_setting(line: str, tokens: int | None, limit: PaceLimit | None) -> None:
    assert pace_limit(EndpointConfig(prefill_tokens=tokens), EnginePlan(line, {})) == limit
