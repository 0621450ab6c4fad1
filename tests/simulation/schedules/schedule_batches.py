"""Runs many schedules, in several processes, until a number is done or a time has passed."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from tests.simulation.schedules.schedule import Schedule
from tests.simulation.schedules.schedule_rules import Violation
from tests.simulation.schedules.schedule_run import Run

# Schedules that a process runs before it reports.
BATCH = 50
MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Broken:
    """A schedule in which a rule did not hold."""

    seed: int
    problem: str


def broken(seed: int, trace: list[str] | None = None) -> Broken | None:
    """Runs the schedule of a seed. Returns what is wrong, if anything is."""
    with tempfile.TemporaryDirectory(prefix="fleet-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as name:
        try:
            Run(Schedule.drawn(seed), Path(name), trace).run()
        except Violation as error:
            return Broken(seed, str(error))
    return None


def run_all(
    seeds: Iterable[int], processes: int = 1, seconds: float = float("inf")
) -> Iterator[tuple[int, list[Broken]]]:
    """Yields how many schedules were run and what was wrong, batch by batch. Begins none after `seconds`."""
    until = time.monotonic() + seconds
    left = iter(seeds)
    batches = iter(lambda: [seed for _, seed in zip(range(BATCH), left, strict=False)], [])
    if processes == 1:
        for batch in batches:
            yield _batch(batch)
            if time.monotonic() > until:
                return
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(_batch, batch) for _, batch in zip(range(2 * processes), batches, strict=False)]
        while running:
            yield running.pop(0).result()
            if time.monotonic() < until and (batch := next(batches, [])):
                running.append(pool.submit(_batch, batch))


def _batch(seeds: list[int]) -> tuple[int, list[Broken]]:
    gc.disable()
    gc.freeze()  # a collection then looks only at what the schedules have left
    try:
        found = [problem for seed in seeds if (problem := broken(seed)) is not None]
    finally:
        gc.collect()
        gc.unfreeze()
        gc.enable()
    return len(seeds), found
