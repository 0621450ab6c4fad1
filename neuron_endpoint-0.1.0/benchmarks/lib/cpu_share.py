"""Limits processes to a share of a CPU core with a cgroup (`cpu.cfs_quota_us`; needs root).

On two cores the engine's core process and the load generator saturate before a front end does. With a limit, the front
end saturates first, and its rate is its own. Each process is pinned to one CPU: the kernel distributes a quota in
slices of 5 ms per CPU, and a thread that wakes on another CPU takes a slice from the others (measured: a third of the
rate, or less).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from psutil import Process

GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 20_000


def can_hold() -> bool:
    return (GROUPS / "cpu.cfs_quota_us").exists() and os.access(GROUPS, os.W_OK)


@contextmanager
def held(processes: Sequence[Process], share: float | None) -> Iterator[None]:
    """Puts each process in its own control group, which may use `share` of a core. None sets no limit."""
    if share is None:
        yield
        return
    groups = [GROUPS / f"bench-{process.pid}" for process in processes]
    cpus = os.sched_getaffinity(0)
    own = cycle(sorted(cpus, reverse=True))
    try:
        for group, process in zip(groups, processes, strict=True):
            _run_on(process, {next(own)})
            group.mkdir()
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * share)))
            (group / "cgroup.procs").write_text(str(process.pid))
        yield
    finally:
        for group, process in zip(groups, processes, strict=True):
            _run_on(process, cpus)
            if group.is_dir():
                (GROUPS / "cgroup.procs").write_text(str(process.pid))
                group.rmdir()


def _run_on(process: Process, cpus: Collection[int]) -> None:
    """Pins all threads of a process. Later threads inherit this from the thread that starts them."""
    for thread in process.threads():
        try:
            os.sched_setaffinity(thread.id, cpus)
        except ProcessLookupError:  # it has ended meanwhile
            continue
