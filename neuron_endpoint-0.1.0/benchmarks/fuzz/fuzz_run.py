"""Runs sequences against a server, and says what is wrong: with a reply, or with what other clients notice meanwhile.

Other clients may wait because of a sequence, or because the machine is busy. So each sequence that ran during a wait is
run again alone, on two new servers. It is a finding if it makes others wait on both.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Protocol

from benchmarks.fuzz.fuzz_check import FuzzClient
from benchmarks.fuzz.fuzz_sequences import FuzzStep, sequence
from benchmarks.fuzz.fuzz_step import finding_of
from benchmarks.fuzz.fuzz_watch import ENGINE, TOKEN, Waited, Watch

CLIENTS = 16
# Seconds, and times the median of an idle server: a longer wait of another client is a finding.
LONGEST, LONGEST_OF_IDLE = 1.0, 20.0
IDLE_S = 2.0
ENOUGH = 100
SHOWN = 3000


class FuzzTarget(Protocol):
    """A server that serves."""

    port: int

    def engine_pids(self) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Ran:
    """When a sequence ran, in monotonic seconds."""

    number: int
    began: float
    ended: float


class FuzzRun:
    """A run of sequences. `findings` says what was wrong.

    :param start: starts another server of the same kind, for the sequences that are run again.
    :param seconds: after this time no further sequence begins.
    :ivar statuses: how often each status was answered.
    :ivar suspects: the sequences that ran while another client waited too long, and what it noticed.
    """

    def __init__(
        self,
        target: FuzzTarget,
        start: Callable[[], AbstractContextManager[FuzzTarget]],
        seed: int,
        numbers: range,
        seconds: float,
    ) -> None:
        self._target, self._start, self._seed, self._seconds = target, start, seed, seconds
        self._next = iter(numbers)
        self._lock = threading.Lock()
        self._ran: list[Ran] = []
        self._found: list[tuple[float, str]] = []
        self.statuses: Counter[int] = Counter()
        self.suspects: dict[int, str] = {}
        self.summary = ""

    def findings(self) -> list[str]:
        """Runs all sequences, and those again that may have delayed others."""
        with watching(self._target) as (watch, limit):
            began = time.monotonic()
            deadline = began + self._seconds
            threads = [threading.Thread(target=self._client, args=(watch, deadline)) for _ in range(CLIENTS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.monotonic() - began
            self.summary = self._summary(watch, seconds, began, limit)
            for waited in too_long(watch.waited, limit, began):
                for ran in overlapping(self._ran, waited):
                    self.suspects.setdefault(ran.number, f"{waited.what} {waited.seconds:.2f} s {waited.problem}")
            # What fails because the engine has ended says nothing about itself.
            end = min((waited.began for waited in watch.waited if waited.what == ENGINE), default=math.inf)
            found = [described for at, described in self._found if at < end]
        shown = self._again(self._again(self.suspects))
        return [*found, *(self._described(number, "another client noticed it", what) for number, what in shown.items())]

    def _client(self, watch: Watch, deadline: float) -> None:
        client = FuzzClient(self._target.port)
        while len(self._found) < ENOUGH and not watch.engine_ended and time.monotonic() < deadline:
            with self._lock:
                number = next(self._next, None)
            if number is None:
                break
            began = time.monotonic()
            self._send(client, number)
            with self._lock:
                self._ran.append(Ran(number, began, time.monotonic()))
                done = len(self._ran)
            if done % 1000 == 0:
                print(
                    f"{done} sequences, {dict(sorted(self.statuses.items()))}, {len(self._found)} findings", flush=True
                )
        client.close()

    def _send(self, client: FuzzClient, number: int) -> None:
        for place, step in enumerate(sequence(self._seed, number)):
            wrong, statuses = finding_of(client, step)
            with self._lock:
                self.statuses.update(statuses)
                if wrong is not None:
                    self._found.append((time.monotonic(), self._described(number, f"step {place}", wrong)))
                    print(f"sequence {number}: {wrong[:200]}", flush=True)

    def _again(self, numbers: Iterable[int]) -> dict[int, str]:
        """Those of the sequences that make others wait when they run alone on a new server, and what others notice."""
        shown: dict[int, str] = {}
        left = list(numbers)
        while left:
            with self._start() as target, watching(target) as (watch, limit):
                client = FuzzClient(target.port)
                while left and not watch.engine_ended:
                    number, began = left.pop(0), time.monotonic()
                    self._send(client, number)
                    time.sleep(0.1)  # what it has left running may delay others, too
                    here = Ran(number, began, time.monotonic())
                    for waited in too_long(watch.waited, limit, began):
                        if overlapping([here], waited):
                            shown[number] = f"{waited.what} {waited.seconds:.2f} s {waited.problem}"
                client.close()
        return shown

    def _described(self, number: int, where: str, wrong: str) -> str:
        steps: tuple[FuzzStep, ...] = sequence(self._seed, number)
        raw = "\n".join(
            repr(one)[:SHOWN] for step in steps for one in (*(sent.raw for sent in step.requests), *step.messages)
        )
        return f"seed {self._seed}, sequence {number}, {where}: {wrong}\n{raw}"

    def _summary(self, watch: Watch, seconds: float, began: float, limit: float) -> str:
        ping, token = (quantiles(watch.seen(what, began) or [0.0, 0.0], n=100) for what in ("ping", TOKEN))
        worst = (max(watch.seen(what, began), default=0.0) for what in ("ping", TOKEN))
        return (
            f"seed {self._seed}: {len(self._ran)} sequences in {seconds:.0f} s ({len(self._ran) / seconds:.0f}/s), "
            f"{sum(self.statuses.values())} replies {dict(sorted(self.statuses.items()))}, limit {limit:.2f} s; "
            f"/ping p50 {ping[49] * 1000:.1f} ms, p99 {ping[98] * 1000:.1f} ms, most {next(worst):.2f} s; "
            f"first token p50 {token[49] * 1000:.0f} ms, p99 {token[98] * 1000:.0f} ms, most {next(worst):.2f} s"
        )


@contextmanager
def watching(target: FuzzTarget) -> Iterator[tuple[Watch, float]]:
    """A watch, and the longest wait in seconds, which is measured on the idle server."""
    with Watch(target.port, tuple(target.engine_pids())) as watch:
        time.sleep(IDLE_S)
        yield watch, max(LONGEST, LONGEST_OF_IDLE * median(watch.seen(TOKEN) or [0.0]))


def too_long(waited: Iterable[Waited], limit: float, after: float) -> Iterator[Waited]:
    """The waits that began after a time, and were too long or had a wrong reply."""
    return (one for one in list(waited) if one.ended >= after and (one.seconds > limit or one.problem))


def overlapping(ran: Iterable[Ran], waited: Waited) -> list[Ran]:
    return [one for one in ran if one.began < waited.ended and waited.began < one.ended]
