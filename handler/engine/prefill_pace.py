"""Limits how many prompts are prefilled at the same time, so that running streams keep getting tokens.

An engine prefills waiting prompts before it makes the next tokens of the running requests. The Neuron plugin's
scheduler prefills one prompt per step and decodes nothing in that step (vllm-project/vllm-neuron, `core/scheduler.py`).
While thirty prompts wait, a running stream stops for thirty prefills. vLLM's own scheduler puts all prompts into one
long step together with the decodes. So a burst of prompts is admitted in parts, and the running requests get their
tokens in between. Measurements are in benchmarks/README.md.

There is no limit while no running request streams, because nobody waits for single tokens then. There is also none if
replies are short, because steps would then hold nothing but a few prompts. A burst is spread over at most a quarter of
the steps that a reply takes, in the mean of the last replies.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.neuron.engine_plan import EnginePlan

CHECK_SECONDS: Final = 0.25
# Later prompts stop waiting for one that has no token after so long. The engine may have another reason to wait (a full
# KV cache, a prompt that takes minutes).
MAX_PREFILL_SECONDS: Final = 5.0
MEAN_OVER: Final = 16  # replies: the time constant of the mean reply length


@dataclass(frozen=True, slots=True)
class PaceLimit:
    """How much may be prefilled at the same time: this many requests, or more with at most this many prompt tokens."""

    requests: int
    tokens: int


# On a CPU, 128 prompt tokens take about as long as one decode step. So 128 are computed while 128 are queued.
MIXED: Final = PaceLimit(2, 256)
ONE_BY_ONE: Final = PaceLimit(1, 0)


def pace_limit(config: EndpointConfig, plan: EnginePlan) -> PaceLimit | None:
    """The limit of a configuration. None: prompts are admitted as they arrive."""
    default = ONE_BY_ONE if plan.line.startswith("nxdi") else MIXED
    if config.prefill_tokens is None:
        return default
    return PaceLimit(default.requests, config.prefill_tokens) if config.prefill_tokens else None


@dataclass(slots=True, eq=False)
class _Prompt:
    name: str
    tokens: int
    wanted: Callable[[], bool]
    future: asyncio.Future[bool]
    admitted_at: float = 0.0
    begun: bool = False

    def resolve(self, admitted: bool) -> None:
        if not self.future.done():
            self.future.set_result(admitted)


class PrefillPace:
    """Admits the prompts of one process to one engine. Use it on the engine's loop only.

    :param prefilling: whether the engine has a request of this name that has no token yet.
    """

    def __init__(self, limit: PaceLimit, loop: asyncio.AbstractEventLoop, prefilling: Callable[[str], bool]) -> None:
        self._limit = limit
        self._loop = loop
        self._prefilling = prefilling
        self._prefills: dict[str, _Prompt] = {}
        self._waiting: deque[_Prompt] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._mean_tokens = 1.0
        self._streaming = False
        self._ended = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def turn(self, name: str, tokens: int, wanted: Callable[[], bool]) -> bool:
        """Waits until a request is admitted. The caller must then queue it before the loop runs another task.

        :param tokens: the length of its prompt.
        :param wanted: returns False once the client has disconnected.
        :returns: False if the request is no longer wanted.
        :raises Exception: the error that was given to `fail` meanwhile.
        """
        prompt = _Prompt(name, tokens, wanted, self._loop.create_future())
        if self._waiting or not self._fits(prompt):
            self._waiting.append(prompt)
            self._schedule_check()
            try:
                if not await prompt.future:
                    return False
            except asyncio.CancelledError:
                self._prefills.pop(name, None)
                raise
        else:
            self._admit(prompt)
        prompt.begun = True
        return True

    def step(self, shown: bool | None = None) -> None:
        """Call after each step of the engine. A request that has got its first token makes room for the next.

        :param shown: whether a running request of this step streams. None: the step had no running request.
        """
        if shown is not None:
            self._streaming = shown
        for name in [name for name, prompt in self._prefills.items() if prompt.begun and not self._prefilling(name)]:
            del self._prefills[name]
        while self._waiting and (self._waiting[0].future.done() or self._fits(self._waiting[0])):
            prompt = self._waiting.popleft()
            wanted = not prompt.future.done() and prompt.wanted()
            if wanted:
                self._admit(prompt)
            prompt.resolve(wanted)

    def replied(self, tokens: int) -> None:
        """Call when a reply has ended, with its number of tokens."""
        self._mean_tokens += (tokens - self._mean_tokens) / MEAN_OVER

    def end(self) -> None:
        """Call when the engine has ended. Every waiting request is admitted, and then fails at the engine."""
        self._ended = True
        self.step()

    def fail(self, error: Exception) -> None:
        """Ends all waiting with an error."""
        waiting, self._waiting = self._waiting, deque()
        for prompt in waiting:
            if not prompt.future.done():
                prompt.future.set_exception(error)

    def _admit(self, prompt: _Prompt) -> None:
        prompt.admitted_at = self._loop.time()
        self._prefills[prompt.name] = prompt

    def _fits(self, prompt: _Prompt) -> bool:
        count = len(self._prefills)
        burst = len(self._waiting) + count + 1
        if self._ended or not self._streaming or count < max(self._limit.requests, burst * 4 / self._mean_tokens):
            return True
        return sum(running.tokens for running in self._prefills.values()) + prompt.tokens <= self._limit.tokens

    def _schedule_check(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_SECONDS, self._check)

    def _check(self) -> None:
        """Removes requests whose client has disconnected, and those that took too long. The engine reports neither."""
        self._timer = None
        before = self._loop.time() - MAX_PREFILL_SECONDS
        for name in [name for name, prompt in self._prefills.items() if prompt.admitted_at < before]:
            del self._prefills[name]
        for prompt in [one for one in self._waiting if one.future.done() or not one.wanted()]:
            self._waiting.remove(prompt)
            prompt.resolve(False)
        self.step()
        if self._waiting:
            self._schedule_check()
