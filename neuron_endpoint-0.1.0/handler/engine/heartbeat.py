"""Detects an engine that makes no progress: sends a probe through the core's busy loop once a second.

A process that is alive may still be stuck, so its process id is not enough. A probe may be answered late for a good
reason (a long prefill) or a bad one (a stopped or deadlocked core). CPU time distinguishes the two. A core that is
`stall` seconds late and has used almost no CPU time is stalled. A core that computes gets `BUSY_FACTOR` times as long.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

INTERVAL = 1.0
BUSY_FACTOR = 20
# The engine core is not computing if it used less than this share of one CPU during the whole wait.
IDLE_SHARE = 0.05


@dataclass(slots=True, eq=False)
class Heartbeat:
    """Sends a probe once a second, on the engine's loop. The result may be read from any thread.

    :param _probe: a round trip through the core's busy loop.
    :param _pids: the processes whose CPU time distinguishes a long step from a stall.
    :param _stall: seconds without an answer after which an engine that uses no CPU time is stalled.
    """

    _probe: Callable[[], Awaitable[object]]
    _pids: Sequence[int]
    _stall: float
    _sent: float | None = None
    _cpu: float = 0.0

    async def run(self) -> None:
        """Runs until it is cancelled, or until a probe fails."""
        while True:
            self._cpu = cpu_seconds(self._pids)
            self._sent = time.monotonic()
            await self._probe()
            self._sent = None
            await asyncio.sleep(INTERVAL)

    def late(self) -> float:
        """Seconds since the unanswered probe was sent. 0 if there is none."""
        sent = self._sent
        return 0.0 if sent is None else time.monotonic() - sent

    def stalled(self) -> bool:
        late = self.late()
        if late < self._stall:
            return False
        return late >= self._stall * BUSY_FACTOR or cpu_seconds(self._pids) - self._cpu < late * IDLE_SHARE


def cpu_seconds(pids: Sequence[int]) -> float:
    """The user and system CPU seconds that the processes have used. An ended process counts as 0."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
