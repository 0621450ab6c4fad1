"""How many prompts are on their way to their first token at once: the running streams wait for each of them.

An engine lets the prompts that wait go before the next tokens of the requests that run. The Neuron plugin's scheduler
prefills one a step and decodes nobody meanwhile (vllm-project/vllm-neuron, `core/scheduler.py`): while thirty prompts
wait, a running stream stands still for thirty prefills. vLLM's own puts them all into one long step beside the decodes.
So a burst is let in by parts, and the running requests get their tokens in between: measured in benchmarks/README.md.

Not while all that runs are whole replies, whose tokens nobody waits for. And not where replies are short: that would
make steps with nothing but a few prompts in them. A burst is spread over no more than a quarter of the steps that a
reply takes, in the mean of the last ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.neuron.engine_plan import EnginePlan

LOOK_AGAIN: Final = 0.25
# The engine may be held up by something else (a full KV cache, a prompt of minutes): later ones no longer wait for it.
PATIENCE: Final = 5.0
MEMORY: Final = 16  # replies in whose mean one counts by e


@dataclass(frozen=True, slots=True)
class PaceLimit:
    """What may be on its way: so many requests, or as many as have no more prompt tokens than this together."""

    requests: int
    tokens: int


# A CPU computes 128 tokens of prompts in the order of a decode's time. So many are computed while as many are queued.
MIXED: Final = PaceLimit(2, 256)
ONE_BY_ONE: Final = PaceLimit(1, 0)


def pace_limit(config: EndpointConfig, plan: EnginePlan) -> PaceLimit | None:
    """None: all are let in as they come."""
    ground = ONE_BY_ONE if plan.line.startswith("nxdi") else MIXED
    if config.prefill_tokens is None:
        return ground
    return PaceLimit(ground.requests, config.prefill_tokens) if config.prefill_tokens else None


@dataclass(slots=True, eq=False)
class _Prompt:
    name: str
    tokens: int
    wanted: Callable[[], bool]
    future: asyncio.Future[bool]
    since: float = 0.0
    begun: bool = False

    def answer(self, may: bool) -> None:
        if not self.future.done():
            self.future.set_result(may)


class PrefillPace:
    """One engine's, as one process sees it. Lives on the loop.

    :param prefilling: whether the engine has a request of this name that has no token yet.
    """

    def __init__(self, limit: PaceLimit, loop: asyncio.AbstractEventLoop, prefilling: Callable[[str], bool]) -> None:
        self._limit = limit
        self._loop = loop
        self._prefilling = prefilling
        self._under_way: dict[str, _Prompt] = {}
        self._waiting: deque[_Prompt] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._mean = 1.0
        self._shown = False
        self._over = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def turn(self, name: str, tokens: int, wanted: Callable[[], bool]) -> bool:
        """Waits until a request may go to the engine, which must then have it before the loop turns.

        :param tokens: of its prompt.
        :param wanted: False from when its client is gone.
        :returns: False: it is not wanted any more.
        :raises Exception: what `fail` was given meanwhile.
        """
        prompt = _Prompt(name, tokens, wanted, self._loop.create_future())
        if self._waiting or not self._enters(prompt):
            self._waiting.append(prompt)
            self._watch()
            try:
                if not await prompt.future:
                    return False
            except asyncio.CancelledError:
                self._under_way.pop(name, None)
                raise
        else:
            self._let_in(prompt)
        prompt.begun = True
        return True

    def step(self, shown: bool | None = None) -> None:
        """The engine has said something: who has had a first token makes room.

        :param shown: tokens of running requests were in it that are shown as they come; None: none of any.
        """
        if shown is not None:
            self._shown = shown
        for name in [name for name, one in self._under_way.items() if one.begun and not self._prefilling(name)]:
            del self._under_way[name]
        while self._waiting and (self._waiting[0].future.done() or self._enters(self._waiting[0])):
            prompt = self._waiting.popleft()
            wanted = not prompt.future.done() and prompt.wanted()
            if wanted:
                self._let_in(prompt)
            prompt.answer(wanted)

    def replied(self, tokens: int) -> None:
        """A reply of so many tokens has ended."""
        self._mean += (tokens - self._mean) / MEMORY

    def end(self) -> None:
        """The engine is gone: whoever waits is to hear that."""
        self._over = True
        self.step()

    def fail(self, error: Exception) -> None:
        """Whoever waits hears this instead."""
        waiting, self._waiting = self._waiting, deque()
        for prompt in waiting:
            if not prompt.future.done():
                prompt.future.set_exception(error)

    def _let_in(self, prompt: _Prompt) -> None:
        prompt.since = self._loop.time()
        self._under_way[prompt.name] = prompt

    def _enters(self, prompt: _Prompt) -> bool:
        count = len(self._under_way)
        burst = len(self._waiting) + count + 1
        if self._over or not self._shown or count < max(self._limit.requests, burst * 4 / self._mean):
            return True
        return sum(one.tokens for one in self._under_way.values()) + prompt.tokens <= self._limit.tokens

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_AGAIN, self._look)

    def _look(self) -> None:
        """Of those whose client is gone the engine says nothing."""
        self._timer = None
        before = self._loop.time() - PATIENCE
        for name in [name for name, one in self._under_way.items() if one.since < before]:
            del self._under_way[name]
        for prompt in [one for one in self._waiting if one.future.done() or not one.wanted()]:
            self._waiting.remove(prompt)
            prompt.answer(False)
        self.step()
        if self._waiting:
            self._watch()
