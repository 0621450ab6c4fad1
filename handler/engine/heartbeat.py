"""Does the engine still turn? A process that is alive proves nothing: this asks its busy loop, once a second.

An answer may be late for a good reason (a long prefill) or a bad one (a stopped or deadlocked core). The two differ
in CPU time: a core that is `stall` seconds late and has used next to none is stalled; one that computes is given
`BUSY_FACTOR` times as long.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

INTERVAL = 1.0
BUSY_FACTOR = 20
# Below this share of one core over the whole wait, the core is not computing.
IDLE_SHARE = 0.05


class Heartbeat:
    """Asks a question on the loop, once a second; read from any thread.

    :param question: a round trip through the engine's busy loop.
    :param pids: the processes whose CPU time tells a long step from a stalled one.
    :param stall: seconds without an answer after which an idle-looking engine is stalled.
    """

    __slots__ = ("_asked", "_cpu", "_pids", "_question", "_stall")

    def __init__(self, question: Callable[[], Awaitable[object]], pids: Sequence[int], stall: float) -> None:
        self._question = question
        self._pids = tuple(pids)
        self._stall = stall
        self._asked: float | None = None
        self._cpu = 0.0

    async def beat(self) -> None:
        """Runs until cancelled, or until the engine can no longer be asked."""
        while True:
            self._cpu = cpu_seconds(self._pids)
            self._asked = time.monotonic()
            await self._question()
            self._asked = None
            await asyncio.sleep(INTERVAL)

    def late(self) -> float:
        """Seconds since the oldest unanswered question; 0 when there is none."""
        asked = self._asked
        return 0.0 if asked is None else time.monotonic() - asked

    def stalled(self) -> bool:
        late = self.late()
        if late < self._stall:
            return False
        return late >= self._stall * BUSY_FACTOR or cpu_seconds(self._pids) - self._cpu < late * IDLE_SHARE


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system seconds that the processes have used; those that are gone count as 0."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
