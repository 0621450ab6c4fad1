"""The host's memory, as Linux tells it, in bytes: what a further engine may take of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")
# The limit and the use of the container's memory: cgroup v2, then v1 (Linux, admin-guide/cgroup-v2 and cgroup-v1).
CGROUPS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat"),
    (
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "sys/fs/cgroup/memory/memory.usage_in_bytes",
        "sys/fs/cgroup/memory/memory.stat",
    ),
)
# File pages that the kernel gives back first; v1 counts those of the groups below with them.
RECLAIMABLE = ("total_inactive_file", "inactive_file")


def total(root: Path = ROOT) -> int:
    """What the machine has. The container may be held to less."""
    return _meminfo(root)["MemTotal"]


def limit(root: Path = ROOT) -> int:
    """What the machine has, or what the container is held to, whichever is less."""
    held = [_meminfo(root)["MemTotal"]]
    for limit_file, _, _ in CGROUPS:
        with suppress(OSError, ValueError):  # no such group; "max"
            held.append(int((root / limit_file).read_text()))
    return min(held)


def available(root: Path = ROOT) -> int:
    """What can be had without swapping: the machine's, or what the container's limit leaves, whichever is less."""
    left = [_meminfo(root)["MemAvailable"]]
    for limit_file, use_file, stat_file in CGROUPS:
        try:
            limit, used = (root / limit_file).read_text().strip(), int((root / use_file).read_text())
            stat = dict(line.split() for line in (root / stat_file).read_text().splitlines())
        except OSError:
            continue
        if limit != "max":
            cached = next((int(stat[name]) for name in RECLAIMABLE if name in stat), 0)
            left.append(int(limit) - used + cached)
    return max(0, min(left))


def resident(pids: Iterable[int], root: Path = ROOT) -> int:
    """What processes hold in memory now, pages that they share counted in each."""
    pages = 0
    for pid in pids:
        try:
            pages += int((root / f"proc/{pid}/statm").read_text().split()[1])
        except OSError:  # it has ended
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def nodes(root: Path = ROOT) -> int:
    """NUMA nodes, at least one."""
    return len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or 1


def _meminfo(root: Path) -> dict[str, int]:
    rows = (line.split() for line in (root / "proc/meminfo").read_text().splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows}
