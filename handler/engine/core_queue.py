"""Decides which sequence enters the engine's core next: fair between requests, and prompts a few at a time.

The core takes sequences in the order in which they arrive, and all that it is given. So sequences wait here.

Slots. A request may have many sequences (`n`, several prompts, JSON Lines). If the core had them all, a later request
would wait until the last of them has a slot. So one request holds at most a share of the slots, and its further
sequences leave some slots free. A further sequence waits as if it had come later: by as many arrivals as there are
slots, for each slot that its request holds. So first sequences pass it, but not for ever.

A request that may end the engine is tried alone: it waits until the core is empty, and nothing else enters meanwhile.

Prefill. An engine prefills waiting prompts before it makes the next tokens of the running requests. The Neuron plugin's
scheduler prefills one prompt per step and decodes nothing in that step (vllm-project/vllm-neuron, `core/scheduler.py`).
While thirty prompts wait, a running stream stops for thirty prefills. vLLM's own scheduler puts all prompts into one
long step together with the decodes. So a burst of prompts is admitted in parts, and the running requests get their
tokens in between. Measurements are in benchmarks/README.md. There is no limit while no running request streams, because
nobody waits for single tokens then. If replies are short, steps would hold nothing but a few prompts. So a burst is
spread over at most a quarter of a reply's steps, in the mean of the last replies, as far as one step can hold it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from handler.engine.queue_limits import QueueLimits

CHECK_SECONDS: Final = 0.25
# Later prompts stop waiting for one that has no token after so long. The engine may have another reason to wait (a full
# KV cache, a prompt that takes minutes).
MAX_PREFILL_SECONDS: Final = 5.0
MEAN_OVER: Final = 16  # replies: the time constant of the mean reply length


@dataclass(slots=True, eq=False)
class RequestGroup:
    """The sequences of one HTTP request, which share the request's slots.

    :param alone: the core has nothing else while it has one of them. Such a group enters before others.
    :param begun: called when all that wait have entered and have a token. Only for a group that is alone.
    :ivar held: how many of them the core has.
    :ivar unpaced: the one that does not count as a prefill and has no token yet.
    """

    alone: bool = False
    begun: Callable[[], object] = lambda: None
    held: int = 0
    unpaced: _Entry | None = None
    entries: deque[_Entry] = field(default_factory=deque)


# The group of the sequences that the running task asks for. None: each sequence is a group of its own.
GROUP: Final[ContextVar[RequestGroup | None]] = ContextVar("request_group", default=None)


def join_group() -> RequestGroup:
    """Makes the sequences that the running task asks for one group, unless they are part of one already."""
    group = GROUP.get()
    if group is None:
        group = RequestGroup()
        GROUP.set(group)
    return group


@dataclass(slots=True, eq=False)
class _Entry:
    name: str
    tokens: int
    paced: bool
    wanted: Callable[[], bool]
    group: RequestGroup
    future: asyncio.Future[bool]
    place: int = 0
    admitted_at: float = 0.0
    begun: bool = False

    def resolve(self, admitted: bool) -> None:
        if not self.future.done():
            self.future.set_result(admitted)


class CoreQueue:
    """Admits the sequences of one process to one engine. Use it on the engine's loop only.

    :param prefilling: whether the engine has a sequence of this name that has no token yet.
    :ivar waiting: how many sequences wait.
    """

    def __init__(self, limits: QueueLimits, loop: asyncio.AbstractEventLoop, prefilling: Callable[[str], bool]) -> None:
        self._limits = limits
        self._loop = loop
        self._prefilling = prefilling
        self._inside: dict[str, _Entry] = {}
        self._prefills: dict[str, _Entry] = {}
        # The groups with waiting sequences: those without a slot in the order of arrival, and the others.
        self._first: deque[RequestGroup] = deque()
        self._further: dict[RequestGroup, None] = {}
        # The groups that have to be alone, and the one that the core has.
        self._single: deque[RequestGroup] = deque()
        self._trial: RequestGroup | None = None
        self.waiting = 0
        self._places = count()
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._mean_tokens = 1.0
        self._streaming = False
        self._ended: Exception | None = None

    async def turn(
        self,
        name: str,
        tokens: int,
        wanted: Callable[[], bool] = lambda: True,
        *,
        group: RequestGroup | None = None,
        paced: bool = True,
    ) -> bool:
        """Waits until a sequence is admitted. The caller must then queue it before the loop runs another task.

        :param tokens: the length of its prompt.
        :param wanted: returns False once the client has disconnected.
        :param group: None: the sequence is the only one of its request.
        :param paced: False: it does not count as a prefill, because a grammar may take seconds to compile before it.
            The next sequence of its request enters when it has a token.
        :returns: False if the sequence is no longer wanted.
        :raises Exception: the error that was given to `end`.
        """
        if self._ended is not None:
            raise self._ended
        group = group or RequestGroup()
        entry = _Entry(name, tokens, paced, wanted, group, self._loop.create_future())
        if not (self._first or group.entries) and self._may_enter(group) and self._may_prefill(entry, 1):
            self._admit(entry)
        else:
            self._wait(entry)
            try:
                if not await entry.future:
                    return False
            except asyncio.CancelledError:
                self.left(name)
                raise
        entry.begun = True
        return True

    def left(self, name: str) -> None:
        """Call when a sequence has left the engine, or does not enter it although it was admitted."""
        entry = self._inside.pop(name, None)
        if entry is None:
            return
        self._prefills.pop(name, None)
        group = entry.group
        group.held -= 1
        if group.unpaced is entry:
            group.unpaced = None
        if self._trial is group and not group.held:
            self._trial = None
        if group.held == 0 and group in self._further:
            del self._further[group]
            later = next(
                (at for at, waiting in enumerate(self._first) if self._turn_of(waiting) > self._turn_of(group)), None
            )
            self._first.insert(len(self._first) if later is None else later, group)
        if self.waiting and not self._scheduled:
            # In the loop's next iteration: many sequences may leave in this one.
            self._scheduled = True
            self._loop.call_soon(self._scheduled_step)

    def step(self, streams: bool | None = None) -> None:
        """Call after each step of the engine. A request that has got its first token makes room for the next.

        :param streams: whether a running request of this step streams. None: the step had no running request.
        """
        if streams is not None:
            self._streaming = streams
        for name in [name for name, entry in self._prefills.items() if self._has_token(entry)]:
            del self._prefills[name]
        for group in self._further:
            if group.unpaced is not None and self._has_token(group.unpaced):
                group.unpaced = None
        trial = self._trial
        if trial is not None and not trial.entries and all(map(self._has_token, self._inside.values())):
            trial.begun()
        self._admit_waiting()

    def _has_token(self, entry: _Entry) -> bool:
        """An entry that has not begun is one that the engine does not know yet."""
        return entry.begun and not self._prefilling(entry.name)

    def replied(self, tokens: int) -> None:
        """Call when a reply has ended, with its number of tokens."""
        self._mean_tokens += (tokens - self._mean_tokens) / MEAN_OVER

    def end(self, error: Exception) -> None:
        """Call when the engine has ended. Ends all waiting with an error, now and later."""
        self._ended = error
        groups = self._take_groups()
        self.waiting = 0
        for group in groups:
            entries, group.entries = group.entries, deque()
            for entry in entries:
                if not entry.future.done():
                    entry.future.set_exception(error)

    def _wait(self, entry: _Entry) -> None:
        entry.place = next(self._places)
        entry.group.entries.append(entry)
        self.waiting += 1
        if len(entry.group.entries) == 1:
            self._queue(entry.group)
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_SECONDS, self._check)

    def _take_groups(self) -> list[RequestGroup]:
        groups = [*self._single, *self._first, *self._further]
        for queue in (self._single, self._first, self._further):
            queue.clear()
        return groups

    def _queue(self, group: RequestGroup) -> None:
        """Queues a group that has waiting sequences."""
        if group.alone:
            self._single.append(group)
        elif group.held:
            self._further[group] = None
        else:
            self._first.append(group)

    def _admit(self, entry: _Entry) -> None:
        entry.admitted_at = self._loop.time()
        entry.group.held += 1
        if entry.group.alone:
            self._trial = entry.group
        self._inside[entry.name] = entry
        if entry.paced:
            self._prefills[entry.name] = entry
        else:
            entry.group.unpaced = entry

    def _admit_waiting(self) -> None:
        while (group := self._next_group()) is not None:
            entry = group.entries[0]
            wanted = not entry.future.done() and entry.wanted()
            if wanted and not self._may_prefill(entry, 0):
                return
            if group.alone:
                self._single.remove(group)
            elif group.held:
                del self._further[group]
            else:
                self._first.popleft()
            group.entries.popleft()
            self.waiting -= 1
            if wanted:
                self._admit(entry)
            if group.entries:
                self._queue(group)
            entry.resolve(wanted)

    def _next_group(self) -> RequestGroup | None:
        """The group whose turn it is, if the core has room for one of its sequences."""
        if self._trial is not None or self._single:
            single = self._trial or self._single[0]
            return single if single.entries and (self._trial is single or not self._inside) else None
        group = self._first[0] if self._first else None
        for further in self._further:
            if further.held < self._limits.share and further.unpaced is None:
                group = further if group is None or self._turn_of(further) < self._turn_of(group) else group
        # A further sequence whose turn comes before that of a waiting first one leaves no slot free for that.
        return group if group is not None and self._has_room(first=bool(self._first)) else None

    def _turn_of(self, group: RequestGroup) -> int:
        return group.entries[0].place + self._limits.slots * group.held

    def _has_room(self, *, first: bool) -> bool:
        limits, inside = self._limits, len(self._inside)
        return inside < limits.first if first else inside + limits.reserved < limits.slots

    def _may_enter(self, group: RequestGroup) -> bool:
        if group.alone:
            return self._trial is group or not (self._inside or self._single)
        free = self._trial is None and not self._single and group.held < self._limits.share and group.unpaced is None
        return free and self._has_room(first=group.held == 0)

    def _may_prefill(self, entry: _Entry, arriving: int) -> bool:
        """:param arriving: 1 if the entry is not among those that wait, else 0."""
        pace, prefills = self._limits.pace, len(self._prefills)
        if pace is None or not self._streaming or not entry.paced or entry.group.alone:
            return True
        burst = prefills + min(self.waiting + arriving, self._limits.first - len(self._inside))
        if prefills < pace.requests:
            return True
        tokens = sum(running.tokens for running in self._prefills.values()) + entry.tokens
        return tokens <= pace.tokens or (tokens <= pace.step and prefills < burst * 4 / self._mean_tokens)

    def _scheduled_step(self) -> None:
        self._scheduled = False
        self._admit_waiting()

    def _check(self) -> None:
        """Removes requests whose client has disconnected, and those that took too long. The engine reports neither."""
        self._timer = None
        before = self._loop.time() - MAX_PREFILL_SECONDS
        for name in [name for name, entry in self._prefills.items() if entry.admitted_at < before]:
            del self._prefills[name]
        for group in self._take_groups():
            for entry in [entry for entry in group.entries if entry.future.done() or not entry.wanted()]:
                group.entries.remove(entry)
                self.waiting -= 1
                entry.resolve(False)
            if group.entries:
                self._queue(group)
        self.step()
        if self.waiting:
            self._timer = self._loop.call_later(CHECK_SECONDS, self._check)
