"""Reads the memory of the host and of the container from Linux, in bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")
# Files with the limit and the use of the container's memory: cgroup v2, then v1 (Linux, admin-guide/cgroup-v2 and
# cgroup-v1).
CGROUPS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat"),
    (
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "sys/fs/cgroup/memory/memory.usage_in_bytes",
        "sys/fs/cgroup/memory/memory.stat",
    ),
)
# Counters of the processes that the kernel has ended for memory: of the container (cgroup v2, v1), of the host.
OOM_COUNTERS = ("sys/fs/cgroup/memory.events", "sys/fs/cgroup/memory/memory.oom_control", "proc/vmstat")
# File pages that the kernel frees first. The total_ name of cgroup v1 includes the groups below.
RECLAIMABLE = ("total_inactive_file", "inactive_file")


def total(root: Path = ROOT) -> int:
    """The memory of the machine. The container's limit may be lower."""
    return _meminfo(root)["MemTotal"]


def limit(root: Path = ROOT) -> int:
    """The memory of the machine or the limit of the container, whichever is less."""
    limits = [_meminfo(root)["MemTotal"]]
    for limit_file, _, _ in CGROUPS:
        with suppress(OSError, ValueError):  # no such group; "max"
            limits.append(int((root / limit_file).read_text()))
    return min(limits)


def available(root: Path = ROOT) -> int:
    """The memory available without swapping: on the machine or within the container's limit, whichever is less."""
    free = [_meminfo(root)["MemAvailable"]]
    for limit_file, use_file, stat_file in CGROUPS:
        try:
            limit, used = (root / limit_file).read_text().strip(), int((root / use_file).read_text())
            stat = dict(line.split() for line in (root / stat_file).read_text().splitlines())
        except OSError:
            continue
        if limit != "max":
            cached = next((int(stat[name]) for name in RECLAIMABLE if name in stat), 0)
            free.append(int(limit) - used + cached)
    return max(0, min(free))


def oom_kills(root: Path = ROOT) -> int:
    """How many processes the kernel has ended because memory ran out. Only a later, larger number says something."""
    kills = 0
    for name in OOM_COUNTERS:
        with suppress(OSError, ValueError):
            rows = dict(line.split() for line in (root / name).read_text().splitlines())
            kills += int(rows.get("oom_kill", 0))
    return kills


def resident(pids: Iterable[int], root: Path = ROOT) -> int:
    """The memory that processes occupy now. Shared pages count for each process."""
    pages = 0
    for pid in pids:
        try:
            pages += int((root / f"proc/{pid}/statm").read_text().split()[1])
        except OSError:  # it has ended
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def nodes(root: Path = ROOT) -> int:
    """The number of NUMA nodes, at least one."""
    return len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or 1


def _meminfo(root: Path) -> dict[str, int]:
    rows = (line.split() for line in (root / "proc/meminfo").read_text().splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows}
