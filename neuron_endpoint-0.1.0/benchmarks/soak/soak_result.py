"""The result of a soak test, and what in it is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from benchmarks.soak.soak_state import Held

# The largest growth of a process's own memory, as a part of its resident memory.
GROWTH = 0.05
# Threads that pools of a fixed size may start late: asyncio's, those of WebSockets, those that render messages.
LATE_THREADS = 16
SHOWN = 20


@dataclass(slots=True)
class Soak:
    """The result of a soak test.

    :ivar warm: the idle server after the warm-up.
    :ivar end: the idle server at the end.
    :ivar samples: taken under load, with the seconds since the measured part began.
    :ivar others: connections that were open before the first client came.
    :ivar start: the server before the first client came.
    :ivar filled: the server after the prompts of all sizes.
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
        """Returns the resources that are held at the end and were not held after the warm-up."""
        end = self.end
        busy = {"slots": end.in_engine, "places": end.in_flight, "the core's requests": end.running}
        found = [f"{name}: {value} left" for name, value in busy.items() if value]
        if end.sockets > self.others:
            found.append(f"sockets: {self.others} before, {end.sockets} left")
        for name in ("tasks", "threads", "fds", "core_threads", "core_fds"):
            before, after = getattr(self.warm, name), getattr(end, name)
            if after > before + (LATE_THREADS if name == "threads" else 0):
                found.append(f"{name}: {before} after the warm-up, {after} at the end")
        return found

    def growth(self) -> dict[str, float]:
        """Returns how much each process's own memory has grown since the warm-up, as a part of its resident memory.

        Pages of files are left out. The kernel adds and drops them, which could hide a leak.
        """
        before, after = self.warm, self.end
        return {
            "http_rss": (after.http_own - before.http_own) / before.http_rss,
            "core_rss": (after.core_own - before.core_own) / before.core_rss,
        }

    def saturated(self) -> float:
        """Returns the share of the samples in which requests waited for a slot."""
        return sum(held.running > self.slots for _, held in self.samples) / max(1, len(self.samples))

    def violations(self) -> list[str]:
        grown = [f"{name} grew by {share:.1%}" for name, share in self.growth().items() if share >= GROWTH]
        return [*self.wrong[:SHOWN], *self.leaks(), *grown]
